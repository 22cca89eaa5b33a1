"""Accelerate: one line before `prepare`; models train as by the DDP front end, bit for bit."""

import shutil

import pytest
import torch
import torch._dynamo  # the first optimiser would import it, while other ranks wait
from torch.nn.parallel import DistributedDataParallel as DDP

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

pytestmark = needs("accelerate", "transformers")
ACCUMULATE, CLIP = 2, 0.5


def accelerated(kind="bert"):
    """What a user's script has, and the handles of its models."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    import thinwire.frontends.accelerate as door

    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    compression = door.compress(accelerator, RECIPE)  # the one line
    model = tiny(kind, dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    return accelerator, compression, model, optimizer


def batch(rank, step):
    ids = Sentences(128).ids[4 * (4 * step + rank) :][:4]
    return {"input_ids": ids, "labels": ids}


def train(accelerator, model, optimizer, rank, steps):
    norms = []
    for step in steps:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch(rank, step)).loss)
            if accelerator.sync_gradients:
                norms.append(float(accelerator.clip_grad_norm_(model.parameters(), CLIP)))
            optimizer.step()
            optimizer.zero_grad()
    return norms


def by_hand(rank, steps, kind):
    """The same by DDP and `thinwire.compress`."""
    ddp = DDP(tiny(kind, dropout=0.0))
    handle = tw.compress(ddp, RECIPE)
    optimizer, norms = torch.optim.AdamW(ddp.parameters(), 0.01), []
    for step in range(0, steps, ACCUMULATE):
        with ddp.no_sync():
            (ddp(**batch(rank, step)).loss / ACCUMULATE).backward()
        (ddp(**batch(rank, step + 1)).loss / ACCUMULATE).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(ddp.parameters(), CLIP)))
        optimizer.step()
        optimizer.zero_grad()
    handle.close()
    return weights(ddp), norms


# What the ranks do.


def accumulates_and_clips(group, rank, size, kind):
    with launched(rank, size):
        accelerator, compression, model, optimizer = accelerated(kind)
        assert accelerator.num_processes == size
        norms = train(accelerator, model, optimizer, rank, range(8))
        reference = by_hand(rank, 8, kind)
        steps = compression.handles[0].stats()["total"]["steps"]
        compression.close()
        return torch.equal(weights(model), reference[0]), norms == reference[1], steps


def resumes(group, rank, size):
    with launched(rank, size):
        folder = shared_folder()
        accelerator, compression, model, optimizer = accelerated()
        train(accelerator, model, optimizer, rank, range(4))
        accelerator.save_state(str(folder))
        train(accelerator, model, optimizer, rank, range(4, 8))
        compression.close()
        accelerator, compression, again, optimizer = accelerated()
        accelerator.load_state(str(folder))
        train(accelerator, again, optimizer, rank, range(4, 8))
        compression.close()
        files = sorted(file.name for file in folder.glob("thinwire*"))
        accelerator.wait_for_everyone()
        if rank == 0:
            shutil.rmtree(folder)
        return torch.equal(weights(model), weights(again)), files


def waiting(compression):
    """Σ over this rank's tensors of what waits."""
    saved = compression.handles[0].state_dict()["tensors"].values()
    return sum(float(s["feedback/residual"].double().sum()) for s in saved if len(s) > 1)


def saved_by_two(group, rank, size, folder):
    with launched(rank, size):
        accelerator, compression, model, optimizer = accelerated()
        train(accelerator, model, optimizer, rank, range(4))
        accelerator.save_state(folder)
        compression.close()
        return waiting(compression)


def loaded_by_three(group, rank, size, folder):
    with launched(rank, size):
        accelerator, compression, model, optimizer = accelerated()
        accelerator.load_state(folder)
        sum_before = waiting(compression)
        train(accelerator, model, optimizer, rank, range(2))
        compression.close()
        return sum_before, identical(model)


def poisoned(group, rank, size):
    with launched(rank, size):
        accelerator, compression, model, _ = accelerated()
        for step in range(ACCUMULATE):
            with accelerator.accumulate(model):
                loss = model(**batch(rank, step)).loss
                if not accelerator.sync_gradients:
                    accelerator.backward(loss)
                    continue
                with pytest.raises(tw.NonFiniteError, match="rank 1"):
                    accelerator.backward(loss * torch.nan if rank == 1 else loss)
        compression.close()


def too_late(group, rank, size):
    import thinwire.frontends.accelerate as door

    with launched(rank, size):
        accelerator, compression, _, _ = accelerated()
        with pytest.raises(tw.RecipeError, match=r"before accelerator\.prepare"):
            door.compress(accelerator, RECIPE)
        compression.close()


# The tests.


def hooked(group, rank, size):
    """By Accelerate's optimiser, whether ranks meet: it has no hooks of its own."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True)
    met = []
    for begin in (
        lambda model, optimizer: tw.outer(model, optimizer, "localsgd", every=2),
        lambda model, optimizer: tw.wrap(optimizer, model, "dense"),
    ):
        model = torch.nn.Linear(3, 2)
        optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), 0.1))
        handle = begin(model, optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.full((4, 3), 1.0 + rank)).sum().backward()
            optimizer.step()
        parts = [torch.empty(6) for _ in range(size)]
        torch.distributed.all_gather(parts, model.weight.detach().flatten(), group=group)
        met.append(torch.equal(*parts) and handle.stats()["total"]["steps"] > 0)
        handle.close()
    return met


@pytest.mark.parametrize(("size", "kind"), MODELS)
def test_the_bits_are_those_of_ddp_with_accumulation_and_clipping(frameworks, size, kind):
    assert frameworks.run(accumulates_and_clips, size, kind) == [(True, True, 4)] * size


def test_save_state_and_load_state_resume_bit_for_bit_from_a_file_a_rank(frameworks):
    files = ["thinwire-0-of-2.pt", "thinwire-1-of-2.pt"]
    assert frameworks.run(resumes, 2) == [(True, files)] * 2


def test_two_ranks_state_goes_on_with_three(frameworks, tmp_path):
    before = frameworks.run(saved_by_two, 2, str(tmp_path))
    after = frameworks.run(loaded_by_three, 3, str(tmp_path))
    assert sum(mass for mass, _ in after) == pytest.approx(sum(before), rel=1e-6)
    assert all(same for _, same in after)


def test_nan_raises_on_every_rank(frameworks):
    frameworks.run(poisoned, 2)


def test_after_prepare_it_is_too_late(frameworks):
    frameworks.run(too_late, 2)


def test_without_ddp_the_prepared_optimiser_is_hooked(frameworks):
    assert frameworks.run(hooked, 2) == [[True, True]] * 2
