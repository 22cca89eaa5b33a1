"""A small model with Lightning:  torchrun --nproc-per-node 2 examples/with_lightning.py"""

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from thinwire.frontends.lightning import ThinwireStrategy


class Sums(lightning.LightningModule):
    """Learns to add up 64 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        (x,) = batch
        loss: Tensor = (self.net(x) - x.sum(1, keepdim=True)).square().mean()
        if self.trainer.is_global_zero and index % 10 == 9:
            print(f"step {index + 1}  loss {loss.item():.3f}")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.02)


def main() -> None:
    data = TensorDataset(torch.randn(1280, 64, generator=torch.Generator().manual_seed(0)))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=ThinwireStrategy("topk(0.01)"),  # the one line
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Sums(), DataLoader(data, batch_size=32))


if __name__ == "__main__":
    main()
