"""Ray Train: one line after `prepare_model`; GPT-2 and BERT train as by DDP's, bit for bit.

Ray is large and a cluster of it takes long to start, so `make test` is without; `make test-ray`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

import thinwire as tw
from support.doors import RECIPE, Sentences, identical, tiny, weights
from support.extras import needs

pytestmark = [needs("ray", "transformers"), pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
STEPS, ACCUMULATE, CLIP = 4, 2, 0.5
CHECKPOINT = 2  # after so many steps, and at the end
PATHS = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""Where processes that are started find the tests and thinwire, however pytest was."""


@pytest.fixture(scope="module", autouse=True)
def on_this_machine():
    import ray

    settings = {"include_dashboard": False, "log_to_driver": False}
    ray.init(num_cpus=4, runtime_env={"env_vars": PATHS}, **settings)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ray")


# What the workers do.


def batch(rank, turn):
    ids = Sentences(128).ids[4 * (4 * turn + rank) :][:4]
    return {"input_ids": ids, "labels": ids}


def step(ddp, optimizer, rank, number):
    """Accumulates, clips, and tells the norm."""
    with ddp.no_sync():
        (ddp(**batch(rank, 2 * number)).loss / ACCUMULATE).backward()
    (ddp(**batch(rank, 2 * number + 1)).loss / ACCUMULATE).backward()
    norm = float(torch.nn.utils.clip_grad_norm_(ddp.parameters(), CLIP))
    optimizer.step()
    optimizer.zero_grad()
    return norm


def by_hand(rank, kind):
    """The same by DDP and `thinwire.compress`, without a stop."""
    ddp = DDP(tiny(kind, dropout=0.0))
    handle = tw.compress(ddp, RECIPE)
    optimizer = torch.optim.AdamW(ddp.parameters(), 0.01)
    norms = [step(ddp, optimizer, rank, number) for number in range(STEPS)]
    handle.close()
    return weights(ddp), norms


def waiting(compression):
    """Σ over this rank's tensors of what waits."""
    saved = compression.handles[0].state_dict()["tensors"].values()
    return sum(float(s["feedback/residual"].double().sum()) for s in saved if len(s) > 1)


def report(model, optimizer, compression, steps):
    import ray.train

    with tempfile.TemporaryDirectory() as place:
        if ray.train.get_context().get_world_rank() == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(saved | {"steps": steps}, f"{place}/model.pt")
        compression.save(place)
        checkpoint = ray.train.Checkpoint.from_directory(place)
        ray.train.report({"steps": steps}, checkpoint=checkpoint)


def train(config):
    import ray.train
    from ray.train.torch import prepare_model

    import thinwire.frontends.ray as door

    torch.set_num_threads(1)
    rank = ray.train.get_context().get_world_rank()
    model = prepare_model(tiny(config["kind"], dropout=0.0))
    compression = door.compress(model, RECIPE)  # the one line
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    start, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as place:
            saved = torch.load(f"{place}/model.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["steps"]
    norms = []
    for number in range(start, STEPS):
        norms.append(step(model, optimizer, rank, number))
        if number + 1 in (CHECKPOINT, STEPS):
            report(model, optimizer, compression, number + 1)
        if config["fails"] and rank == 1 and start == 0 and number == CHECKPOINT:
            raise RuntimeError("one worker is lost, after a step that is in no checkpoint")
    reference, all_norms = by_hand(rank, config["kind"])
    answer = {
        "start": start,
        "bits": torch.equal(weights(model), reference),
        "norms": norms == all_norms[start:],
        "waits": waiting(compression),
        "nan": told_of_nan(model, rank),
    }
    torch.save(answer, f"{config['folder']}/answer-{rank}.pt")
    compression.close()


def told_of_nan(model, rank):
    loss = model(**batch(rank, 0)).loss
    try:
        (loss * torch.nan if rank == 1 else loss).backward()
    except tw.NonFiniteError as error:
        return "rank 1" in str(error)
    return False


def go_on(config):
    """Three workers, from the files of two."""
    import ray.train
    from ray.train.torch import prepare_model

    import thinwire.frontends.ray as door

    torch.set_num_threads(1)
    rank = ray.train.get_context().get_world_rank()
    model = prepare_model(tiny("gpt2", dropout=0.0))
    compression = door.compress(model, RECIPE)
    compression.load(ray.train.Checkpoint.from_directory(config["checkpoint"]))
    waits = waiting(compression)
    step(model, torch.optim.AdamW(model.parameters(), 0.01), rank, 0)
    answer = {"waits": waits, "same": identical(model)}
    torch.save(answer, f"{config['folder']}/answer-{rank}.pt")
    compression.close()


# The tests.


def fit(function, workers, folder, **config):
    """What Ray says of a run, and what each worker wrote down."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    folder.mkdir()
    trainer = TorchTrainer(
        function,
        train_loop_config=config | {"folder": str(folder)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            storage_path=str(folder / "storage"), failure_config=FailureConfig(max_failures=1)
        ),
    )
    result = trainer.fit()
    return result, [torch.load(folder / f"answer-{rank}.pt") for rank in range(workers)]


@pytest.fixture(scope="module")
def resumed(folder):
    return fit(train, 2, folder / "resumed", kind="gpt2", fails=True)


def test_a_lost_worker_resumes_with_the_bits_of_ddp_with_accumulation_and_clipping(resumed):
    result, answers = resumed
    for answer in answers:
        assert answer["start"] == CHECKPOINT
        assert answer["bits"] and answer["norms"]
    files = sorted(file.name for file in Path(result.checkpoint.path).iterdir())
    assert [name for name in files if not name.startswith(".")] == [
        "model.pt", "thinwire-0-of-2.pt", "thinwire-1-of-2.pt",
    ]  # fmt: skip


def test_nan_raises_on_every_rank(resumed):
    assert [answer["nan"] for answer in resumed[1]] == [True, True]


def test_three_ranks_resume_from_the_checkpoint_of_two(resumed, folder):
    result, before = resumed
    _, after = fit(go_on, 3, folder / "three", checkpoint=result.checkpoint.path)
    masses = [sum(answer["waits"] for answer in answers) for answers in (before, after)]
    assert masses[1] == pytest.approx(masses[0], rel=1e-6) and masses[0] != 0
    assert all(answer["same"] for answer in after)


def test_a_second_run_of_four_workers_has_the_bits_of_ddp(resumed, folder):
    _, answers = fit(train, 4, folder / "second", kind="bert", fails=False)
    assert [answer["start"] for answer in answers] == [0] * 4
    assert all(answer["bits"] and answer["norms"] for answer in answers)


def test_the_example_runs():
    command = [sys.executable, str(ROOT / "examples" / "with_ray.py")]
    paths = os.environ | PATHS
    done = subprocess.run(command, env=paths, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "step 40  loss" in done.stdout
