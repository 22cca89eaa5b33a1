"""Everything: the tensor itself."""

import torch

import thinwire as tw
from support.sparsify import at
from thinwire.sparsify import Everything


def test_it_is_the_tensor_and_not_a_copy() -> None:
    x = torch.randn(10)
    assert Everything().select(x, {}, at(0)) is x


def test_it_has_no_density_and_remembers_nothing() -> None:
    spec = tw.TensorSpec("w", 10, torch.float32, torch.device("cpu"))
    assert Everything().density is None
    assert Everything().init(spec) == {}
