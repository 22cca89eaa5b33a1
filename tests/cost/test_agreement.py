"""How ranks agree on blocks: the cost model names the very messages that the collective sends."""

import pytest
import torch

from thinwire.collective._touched import LISTS_FROM, agree
from thinwire.cost.load import Load, Stage
from thinwire.cost.patterns import _agreed, _to_all, allreduce, meta
from thinwire.types import Sparse, StepContext

BLOCK = 2


class Alike:
    """All of many ranks at once, each of which brings what this one does; keeps what they send."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size, self.stages = size, list[Stage]()

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self.stages.append(_to_all(self.size, tensor.nbytes))
        return [tensor] * self.size

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.stages.append(allreduce(self.size, tensor.nbytes))
        return tensor.mul_(self.size)

    def all_gather_meta(self, numbers: list[int]) -> list[list[int]]:
        self.stages.append(meta(self.size, len(numbers)))
        return [numbers] * self.size


@pytest.mark.parametrize("size", [2, 16, 17, 64, 255, 256])
@pytest.mark.parametrize("blocks", [1000, LISTS_FROM, 4 * LISTS_FROM])
@pytest.mark.parametrize("share", [0.001, 0.02, 0.5])
def test_the_cost_model_sends_what_the_collective_does(
    size: int, blocks: int, share: float
) -> None:
    mine = round(share * blocks)
    indices = torch.arange(mine) * (blocks // mine) * BLOCK
    comm, n = Alike(size), blocks * BLOCK
    ctx = StepContext(tensor="t", step=0, seed=0, comm=comm)
    union = agree(Sparse(indices, torch.ones(mine), n), BLOCK, ctx)
    assert torch.equal(union.blocks, indices // BLOCK)
    assert comm.stages == list(_agreed(Load(size, n, mine * BLOCK, 1.0, BLOCK), BLOCK))


def test_all_three_ways_are_taken() -> None:
    def sent(size: int, blocks: int, mine: int) -> Stage:
        return _agreed(Load(size, blocks * BLOCK, mine * BLOCK, 1.0, BLOCK), BLOCK)[-1]

    assert sent(16, 1000, 1) == _to_all(16, 125)  # bitmaps
    assert sent(64, 1000, 1) == _to_all(64, 125)  # flags are fewer bytes, and 126 rounds
    many = 4 * LISTS_FROM
    assert sent(64, many, many // 2) == allreduce(64, many)  # flags
    assert sent(17, LISTS_FROM, 10) == _to_all(17, 40)  # lists
