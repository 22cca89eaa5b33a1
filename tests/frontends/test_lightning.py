"""Lightning and Fabric: BERT and GPT-2 train as by the DDP front end, bit for bit."""

import logging
import shutil

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import thinwire as tw
from support.doors import (
    MODELS,
    RECIPE,
    Sentences,
    identical,
    launched,
    shared_folder,
    tiny,
    weights,
)
from support.extras import needs
from thinwire.frontends import rank_files

pytestmark = needs("lightning", "transformers")
STEPS, ACCUMULATE, CLIP, BATCH = 4, 2, 0.5, 2
EPOCH = 8  # sentences a rank: two steps; Lightning resumes where an epoch begins


def module(poison=False, kind="bert"):
    import lightning

    class Text(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = tiny(kind, dropout=0.0)

        def training_step(self, batch, index):
            loss = self.model(**batch).loss
            return loss * torch.nan if poison else loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 0.01)

    return Text()


def fit(folder, epochs, model, ckpt_path=None, trainer=None):
    """A user's script."""
    import lightning

    from thinwire.frontends.lightning import ThinwireStrategy

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    trainer = trainer or lightning.Trainer(
        accelerator="cpu",
        devices=torch.distributed.get_world_size(),
        strategy=ThinwireStrategy(RECIPE),  # the one line
        max_epochs=epochs,
        accumulate_grad_batches=ACCUMULATE,
        gradient_clip_val=CLIP,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    sentences = Sentences(EPOCH * trainer.world_size)
    sampler = DistributedSampler(sentences, shuffle=False)
    trainer.fit(model, DataLoader(sentences, BATCH, sampler=sampler), ckpt_path=ckpt_path)
    return trainer


def by_hand(rank, size, kind):
    """The same by DDP and `thinwire.compress`: every rank has each size-th sample."""
    ddp, epoch = DDP(tiny(kind, dropout=0.0)), Sentences(EPOCH * size).ids[rank::size]
    ids = 2 * epoch.contiguous().split(BATCH)
    handle = tw.compress(ddp, RECIPE)
    optimizer = torch.optim.AdamW(ddp.parameters(), 0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        first, second = ids[ACCUMULATE * step : ACCUMULATE * (step + 1)]
        with ddp.no_sync():
            (ddp(input_ids=first, labels=first).loss / ACCUMULATE).backward()
        (ddp(input_ids=second, labels=second).loss / ACCUMULATE).backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), CLIP)
        optimizer.step()
    handle.close()
    return weights(ddp)


# What the ranks do.


def trains(group, rank, size, kind):
    with launched(rank, size):
        folder, model = shared_folder(), module(kind=kind)
        trainer = fit(folder, 2, model)
        assert trainer.world_size == size
        same = torch.equal(weights(model), by_hand(rank, size, kind))
        steps = trainer.strategy.handle.stats()["total"]["steps"]
        before = weights(model)
        trainer.fit_loop.max_epochs = 3
        fit(folder, 3, model, trainer=trainer)
        further = identical(model) and not torch.equal(before, weights(model))
        trainer.strategy.handle.close()
        if rank == 0:
            shutil.rmtree(folder)
        return same, steps, further


def resumes(group, rank, size):
    with launched(rank, size):
        folder = shared_folder()
        whole, half, again = module(), module(), module()
        trainers = [fit(folder, 2, whole), fit(folder, 1, half)]
        file = folder / "half.ckpt"
        trainers[1].save_checkpoint(file)
        trainers.append(fit(folder, 2, again, ckpt_path=file))
        files = sorted(one.name for one in (folder / "half.ckpt.thinwire").iterdir())
        for trainer in trainers:
            trainer.strategy.handle.close()
        torch.distributed.barrier()
        if rank == 0:
            trainers[1].strategy.remove_checkpoint(file)
            left = list(folder.iterdir())
            shutil.rmtree(folder)
            assert left == []
        return torch.equal(weights(whole), weights(again)), files


def poisoned(group, rank, size):
    with launched(rank, size):
        folder = shared_folder()
        with pytest.raises(tw.NonFiniteError, match="rank 1"):
            fit(folder, 1, module(poison=rank == 1))


def by_ddp(rank, size, kind, steps):
    """What `fabric` does, by DDP and `thinwire.compress`."""
    ddp = DDP(tiny(kind, dropout=0.0))
    handle = tw.compress(ddp, RECIPE)
    optimizer = torch.optim.AdamW(ddp.parameters(), 0.01)
    for step in range(steps):
        ids = fabrics(rank, size, step)
        with ddp.no_sync():
            ddp(input_ids=ids, labels=ids).loss.backward()
        ddp(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
    handle.close()
    return weights(ddp)


def fabrics(rank, size, step):
    return Sentences(64).ids[2 * (size * step + rank) :][:2]


def fabric(group, rank, size, kind):
    """What `fabric.setup` gives back goes to `thinwire.compress` as it is."""
    from lightning.fabric import Fabric

    with launched(rank, size):
        folder = shared_folder()

        def start():
            runner = Fabric(accelerator="cpu", devices=size, strategy="ddp")
            runner.launch()
            bare = tiny(kind, dropout=0.0)
            model, optimizer = runner.setup(bare, torch.optim.AdamW(bare.parameters(), 0.01))
            return runner, model, optimizer, tw.compress(model, RECIPE)

        def train(runner, model, optimizer, steps):
            for step in steps:
                ids = fabrics(rank, size, step)
                for turn in range(ACCUMULATE):
                    with runner.no_backward_sync(model, enabled=turn < ACCUMULATE - 1):
                        runner.backward(model(input_ids=ids, labels=ids).loss)
                runner.clip_gradients(model, optimizer, max_norm=CLIP)
                optimizer.step()
                optimizer.zero_grad()

        *whole, one = start()
        train(*whole, range(4))
        *half, two = start()
        train(*half, range(2))
        rank_files.save(folder, [two])
        *again, three = start()
        torch.distributed.barrier()
        again[1].load_state_dict(half[1].state_dict())
        again[2].load_state_dict(half[2].state_dict())
        rank_files.load(folder, [three])
        train(*again, range(2, 4))
        for handle in (one, two, three):
            handle.close()
        if rank == 0:
            shutil.rmtree(folder)
        resumed = torch.equal(weights(whole[1]), weights(again[1]))
        same = torch.equal(weights(whole[1]), by_ddp(rank, size, kind, 4))
        return same, resumed, one.stats()["total"]["steps"]


def goes_on(group, rank, size, folder, epochs, ckpt_path):
    """Train up to so many epochs; how many steps the state has behind it, and whether all agree."""
    with launched(rank, size):
        model = module()
        trainer = fit(folder, epochs, model, ckpt_path=ckpt_path)
        trainer.save_checkpoint(f"{folder}/{epochs}.ckpt")
        tensors = trainer.strategy.handle.state_dict()["tensors"].values()
        trainer.strategy.handle.close()
        return {int(one["step"]) for one in tensors}, identical(model)


def fabric_elsewhere(group, rank, size, folder, loads):
    """NaN on one rank is told on all; what waits is saved, or loaded by another number of ranks."""
    from lightning.fabric import Fabric

    with launched(rank, size):
        runner = Fabric(accelerator="cpu", devices=size, strategy="ddp")
        runner.launch()
        bare = tiny("gpt2", dropout=0.0)
        model, _ = runner.setup(bare, torch.optim.AdamW(bare.parameters(), 0.01))
        handle = tw.compress(model, RECIPE)
        ids = Sentences(64).ids[rank : rank + 2]
        if loads:
            rank_files.load(folder, [handle])
        else:
            runner.backward(model(input_ids=ids, labels=ids).loss)
            rank_files.save(folder, [handle])
        kept = handle.state_dict()["tensors"].values()
        mass = sum(float(s["feedback/residual"].double().sum()) for s in kept if len(s) > 1)
        with pytest.raises(tw.NonFiniteError, match="rank 1"):
            loss = model(input_ids=ids, labels=ids).loss
            runner.backward(loss * torch.nan if rank == 1 else loss)
        handle.close()
        return mass


def named_by_fabric(group, rank, size, strategy):
    """What local steps call the parameters of a model that Fabric has wrapped."""
    from lightning.fabric import Fabric

    with launched(rank, size):
        runner = Fabric(accelerator="cpu", devices=size, strategy=strategy)
        runner.launch()
        bare = torch.nn.Linear(3, 2)
        model, optimizer = runner.setup(bare, torch.optim.SGD(bare.parameters(), 0.1))
        handle = tw.outer(model, optimizer, {"weight": "topk", "*": "dense"}, every=1)
        runner.backward(model(torch.ones(4, 3)).sum())
        optimizer.step()
        rounds = handle.stats()["local"]["rounds"]
        handle.close()
        return handle.fragments, rounds


# The tests.


@pytest.mark.parametrize(("size", "kind"), MODELS)
def test_the_bits_are_those_of_ddp_with_accumulation_and_clipping_and_again(frameworks, size, kind):
    assert frameworks.run(trains, size, kind) == [(True, STEPS, True)] * size


def test_resume_from_a_checkpoint_is_bit_for_bit(frameworks):
    files = ["thinwire-0-of-2.pt", "thinwire-1-of-2.pt"]
    assert frameworks.run(resumes, 2) == [(True, files)] * 2


def test_nan_raises_on_every_rank(frameworks):
    frameworks.run(poisoned, 2)


@pytest.mark.parametrize(("size", "kind"), MODELS)
def test_fabric_accumulates_clips_and_resumes_with_the_bits_of_ddp(frameworks, size, kind):
    assert frameworks.run(fabric, size, kind) == [(True, True, 4)] * size


def test_three_ranks_resume_from_the_checkpoint_of_two(frameworks, tmp_path):
    assert frameworks.run(goes_on, 2, str(tmp_path), 1, None) == [({2}, True)] * 2
    after = frameworks.run(goes_on, 3, str(tmp_path), 2, str(tmp_path / "1.ckpt"))
    assert after == [({4}, True)] * 3


def test_fabric_tells_all_of_nan_and_goes_on_with_three_ranks(frameworks, tmp_path):
    before = frameworks.run(fabric_elsewhere, 2, str(tmp_path), False)
    after = frameworks.run(fabric_elsewhere, 3, str(tmp_path), True)
    assert sum(after) == pytest.approx(sum(before), rel=1e-5) and sum(before)


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_local_steps_have_the_users_names_inside_of_fabric(frameworks, strategy):
    assert frameworks.run(named_by_fabric, 1, strategy) == [([("weight", "bias")], 1)]
