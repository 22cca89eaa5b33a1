"""Ray Train: two workers, a checkpoint every ten steps, and on from it if a worker dies.

python examples/uncompressed/with_ray.py
"""

import tempfile

import ray.train
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch import nn

STEPS = 40


def train() -> None:
    rank = ray.train.get_context().get_world_rank()
    torch.random.default_generator.manual_seed(0)  # the same model on every rank
    model = prepare_model(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    start, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(f"{folder}/model.pt")
        model.load_state_dict(saved["model"])
        start = saved["steps"]

    for step in range(start, STEPS):
        x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        if (step + 1) % 10 == 0:
            with tempfile.TemporaryDirectory() as folder:
                if rank == 0:
                    saved = {"model": model.state_dict(), "steps": step + 1}
                    torch.save(saved, f"{folder}/model.pt")
                metrics = {"step": step + 1, "loss": loss.item()}
                ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def main() -> None:
    with tempfile.TemporaryDirectory() as storage:
        run = RunConfig(storage_path=storage, failure_config=FailureConfig(max_failures=1))
        gloo = TorchConfig(backend="gloo")
        workers = ScalingConfig(num_workers=2)
        trainer = TorchTrainer(train, torch_config=gloo, scaling_config=workers, run_config=run)
        print("step {step}  loss {loss:.3f}".format(**trainer.fit().metrics))


if __name__ == "__main__":
    main()
