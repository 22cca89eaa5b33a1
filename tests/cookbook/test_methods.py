"""DeepReduce's framework and the closed systems in it, by name."""

import pytest
import torch

import thinwire as tw
from support.extras import skipped_without_its_package
from thinwire.codec import Pair
from thinwire.codec.index import BloomIndex, HuffmanIndex, VarintIndex
from thinwire.codec.value import FitPolyValue, QuantileValue, ThreeLcValue
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError
from thinwire.sparsify import Everything, Nonzero, TopK

GATHERING = ["allgather", "gtopk(0.05)", "sparcml", "omnireduce(8)"]


def test_what_the_recipes_are_made_of() -> None:
    assert tw.recipe("sketchml").codec == Pair(VarintIndex(), QuantileValue(bits=6))
    assert tw.recipe("skcompress").codec == Pair(HuffmanIndex(), QuantileValue(bits=6))
    assert tw.recipe("deepreduce", density=0.02).sparsifier == TopK(0.02)
    assert tw.recipe("deepreduce").codec == Pair(BloomIndex("p0", 0.001), FitPolyValue())
    three = tw.recipe("3lc")
    assert (three.sparsifier, three.codec) == (Everything(), Pair(value=ThreeLcValue(1.0)))
    assert three.feedback.conserves


def test_deepreduce_takes_any_two_codecs() -> None:
    built = tw.recipe("deepreduce", index="bloom('p2', fpr=0.01)", value="qsgd(7)", sparse=True)
    assert built.sparsifier == Nonzero()
    assert tw.recipe(built.to_dict()) == built
    with pytest.raises(RecipeError, match="unknown index codec 'blum'"):
        tw.recipe("deepreduce", index="blum")


@pytest.mark.parametrize("value", pieces("value"))
@pytest.mark.parametrize("index", pieces("index"))
def test_deepreduce_conserves_whatever_the_codecs(index: str, value: str) -> None:
    with skipped_without_its_package():
        built = tw.recipe("deepreduce", index=index, value=value)
    assert built.conserves


@pytest.mark.parametrize("collective", GATHERING)
@pytest.mark.parametrize(
    "index", [*pieces("index"), "bloom('p1')", "bloom('p2')", "bloom('naive')"]
)
def test_any_index_codec_in_any_gathering_collective(index: str, collective: str) -> None:
    """Alone a rank must keep what it does not get back: gradient = update + residual."""
    with skipped_without_its_package():
        sync = tw.Synchronizer(f"topk(0.05) | {index}+bf16 | {collective} | residual")
    grad = torch.randn(3000, generator=torch.Generator().manual_seed(1))
    update = sync.average("x", grad.clone())
    waits = sync.state_dict()["tensors"]["x"]["feedback/residual"]
    torch.testing.assert_close(update + waits, grad, rtol=0, atol=1e-5)
    assert int((update != 0).sum()) >= 100


@pytest.mark.parametrize("policy", ["p0", "p1", "p2", "leftmost", "naive"])
def test_ok_topk_refuses_filters_when_it_is_built(policy: str) -> None:
    with pytest.raises(RecipeError, match="lossless index codec"):
        tw.recipe(f"topk(0.05) | bloom('{policy}')+raw | ok-topk(0.05) | residual")


def test_a_sparse_gradient_needs_no_sparsifier() -> None:
    """NCF: what is zero stays zero, what is not arrives, in fewer bytes than dense."""
    draw = torch.Generator().manual_seed(2)
    grad = torch.randn(5000, generator=draw)
    grad[torch.randperm(5000, generator=draw)[:2000]] = 0
    sync = tw.Synchronizer("nonzero | bitmap+raw | allgather | none")
    assert torch.equal(sync.average("x", grad.clone()), grad)


def test_3lc_is_smaller_where_runs_are_zero() -> None:
    """Mostly zeros: a byte for seventy values, section 3.3; at worst a byte for five."""
    codec = ThreeLcValue()
    few = torch.zeros(7000)
    few[::700] = 1.0
    assert codec.encode(few, 0).numel() <= 8 + 7000 / 70 + 2 * 10
    assert codec.encode(torch.ones(7000), 0).numel() == 8 + 1400
