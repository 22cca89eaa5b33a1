"""Pieces by name and by id, and those of third parties."""

import dataclasses

import pytest
import torch

import thinwire as tw
from support.codec.cases import LEFT_OUT, at_hand
from thinwire.codec import Pair
from thinwire.codec.index import RawIndex
from thinwire.codec.value import Bf16Value
from thinwire.cookbook import registry
from thinwire.cookbook.registry import piece_by_id, pieces
from thinwire.cost.exchange import Load
from thinwire.cost.patterns import pattern
from thinwire.errors import WireFormatError
from thinwire.types import IndexCodec, ValueCodec


def test_names_and_ids_are_one_to_one() -> None:
    for table in (pieces("index"), pieces("value")):
        assert all(piece.name == name for name, piece in table.items())
        assert len({piece.id for piece in table.values()}) == len(table)
        assert all(0 < piece.id < 2**16 for piece in table.values())


def test_every_piece_keeps_its_protocol() -> None:
    assert all(isinstance(piece, IndexCodec) for piece in at_hand(pieces("index")).values())
    assert all(isinstance(piece, ValueCodec) for piece in at_hand(pieces("value")).values())


def test_ids_are_frozen() -> None:
    """The wire names codecs by these numbers: they never change and are never used again."""
    assert {name: piece.id for name, piece in pieces("value").items()}.items() >= {
        "raw": 1, "fp16": 2, "bf16": 3, "sign": 4, "tern": 5, "qsgd": 6, "fp8": 7, "deflate": 8,
        "zstd": 9, "chunked": 10, "quantile": 11, "fit_poly": 12, "fit_dexp": 13,
        "3lc": 14,
        "centroid2": 15,
    }.items()  # fmt: skip
    assert {name: piece.id for name, piece in pieces("index").items()}.items() >= {
        "raw": 1, "regional": 2, "rice": 3, "elias_fano": 4, "bitmap": 5, "varint": 6, "rle": 7,
        "huffman": 8, "pco": 10, "zstd": 11, "ans": 12, "chunk12": 13, "bloom": 14,
    }.items()  # fmt: skip
    with pytest.raises(WireFormatError, match="9"):  # filters that hashed each row by itself
        piece_by_id("index", 9)


def test_by_id() -> None:
    assert piece_by_id("value", 3) is Bf16Value
    assert piece_by_id("index", 1) is RawIndex
    with pytest.raises(WireFormatError, match="999"):
        piece_by_id("value", 999)
    with pytest.raises(WireFormatError, match="999"):
        piece_by_id("index", 999)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_codec_without_its_package_is_not_tried(name: str) -> None:
    pytest.skip(LEFT_OUT[name])


@dataclasses.dataclass(frozen=True, slots=True)
class First(tw.Sparsifier):
    """The first elements."""

    name = "first"

    count: int = 1

    def select(self, x, state, ctx):
        indices = torch.arange(min(self.count, x.numel()))
        return tw.Sparse(indices, x[indices], x.numel())


@pytest.fixture
def clean():
    """A registry that forgets what the test registers."""
    before = {role: dict(known) for role, known in registry._registered.items()}
    yield
    registry._registered.clear()
    registry._registered.update(before)


def test_a_registered_piece_is_parsed_printed_and_saved(clean) -> None:
    assert tw.register(First) is First
    recipe = tw.recipe("first(3) | raw | allgather | residual")
    assert recipe.sparsifier == First(3)
    assert "First(count=3)" in repr(recipe)
    assert recipe.to_dict()["sparsifier"] == {"name": "first", "count": 3}
    assert tw.recipe(recipe.to_dict()) == recipe
    tw.register(First)  # again, as a module that is imported twice may do


def test_what_is_no_piece_is_refused(clean) -> None:
    with pytest.raises(tw.RecipeError, match="must be a subclass of one of Sparsifier"):
        tw.register(int)
    for base in (tw.Sparsifier, First):
        with pytest.raises(tw.RecipeError, match="First2 must be a dataclass"):
            tw.register(type("First2", (base,), {"name": "first2"}))
    thawed = dataclasses.make_dataclass("Thawed", [], bases=(tw.Sparsifier,))
    with pytest.raises(tw.RecipeError, match="Thawed must be a dataclass"):
        tw.register(thawed)
    unnamed = dataclasses.make_dataclass("Unnamed", [], bases=(First,), frozen=True)
    unnamed.name = ""
    with pytest.raises(tw.RecipeError, match="Unnamed has no name"):
        tw.register(unnamed)


def test_a_name_or_an_id_that_is_taken_is_refused(clean) -> None:
    thief = dataclasses.make_dataclass("Thief", [], bases=(First,), frozen=True)
    thief.name = "topk"
    with pytest.raises(
        tw.RecipeError, match=r"'topk' exists already: thinwire\.sparsify\.topk\.TopK"
    ):
        tw.register(thief)
    for id in (3, 1000):
        value = dataclasses.make_dataclass("Value", [], bases=(Bf16Value,), frozen=True)
        value.name, value.id = "mine", id
        with pytest.raises(tw.RecipeError, match=f"id={id} of the value codec 'mine'"):
            tw.register(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Plain(tw.Codec):
    """A whole codec of its own: raw bytes, in the container of a pair."""

    name = "plain"

    spare: int = 0

    @property
    def lossless(self):
        return True

    def encode(self, s, ctx):
        return Pair().encode(s, ctx)

    def decode(self, wire, ctx):
        return Pair().decode(wire, ctx)


@pytest.mark.parametrize("collective", ["allgather", "gtopk", "ok-topk", "sparcml"])
def test_a_whole_codec_of_a_third_party(clean, collective) -> None:
    tw.register(Plain)
    recipe = tw.recipe(f"topk(0.1) | plain(3) | {collective} | residual", bypass=0)
    assert recipe.codec == Plain(3)
    assert recipe.to_dict()["codec"] == {"name": "plain", "spare": 3}
    assert tw.recipe(recipe.to_dict()) == recipe
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    updates = []
    for given in (recipe, dataclasses.replace(recipe, codec=Pair())):
        sync = tw.Synchronizer(given)
        updates.append(sync.average("w", x.clone()))
        sync.close()
    assert torch.equal(*updates)


@dataclasses.dataclass(frozen=True, slots=True)
class Identity(tw.LinearCodec):
    """A payload that adds, and loses nothing: the elements themselves."""

    name = "identity"

    def project(self, s, ctx):
        return s.to_dense()

    def recover(self, total, numel, ctx):
        return total


def test_a_linear_codec_of_a_third_party(clean) -> None:
    """Its blocks arrive as they are; what it costs is not known, and said so."""
    tw.register(Identity)
    recipe = tw.recipe("block(0.1, 8) | identity | sketch-allreduce(8) | residual", bypass=0)
    assert tw.recipe(recipe.to_dict()) == recipe
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    sync = tw.Synchronizer(recipe)
    update = sync.average("w", x.clone())
    assert "nothing was compared" in sync.explain()
    sync.close()
    sent = update != 0
    assert 0 < int(sent.sum()) <= 104
    assert torch.equal(update[sent], x[sent])
    with pytest.raises(tw.RecipeError, match=r"Identity.* has no cost model"):
        pattern(recipe.collective, recipe.codec, Load(2, 1000, 100))


def test_an_unnamed_piece_can_be_used_but_not_saved() -> None:
    unnamed = dataclasses.make_dataclass("Unnamed", [], bases=(First,), frozen=True)
    unnamed.name = ""
    with pytest.raises(tw.RecipeError, match="has no name"):
        tw.Pipeline(unnamed()).to_dict()


def test_old_names_still_work_and_say_so() -> None:
    with pytest.warns(DeprecationWarning, match=r"thinwire\.recipe"):
        pipeline = tw.resolve("topk(0.02)")
    with pytest.warns(DeprecationWarning, match=r"Pipeline\.to_dict"):
        assert tw.to_dict(pipeline) == pipeline.to_dict()
