"""Index codecs that lean on a package of the extra [codecs].

Covers codec/extras.py.
"""

import sys

import pytest
import torch

from support.codec.cases import INDICES as CODECS
from support.codec.cases import each
from support.codec.index_cases import FOREIGN
from thinwire.cookbook.registry import pieces
from thinwire.errors import RecipeError, WireFormatError

PACKAGES = {"pco": "pcodec.standalone", "zstd": "zstandard", "ans": "constriction"}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_missing_package_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    with pytest.raises(RecipeError, match=r"thinwire\[codecs\]"):
        pieces("index")[name]()


@pytest.mark.parametrize("name", each(FOREIGN))
@pytest.mark.parametrize("count", [2**16, 2**31, 2**40])
def test_few_bytes_cannot_ask_for_memory(name: str, count: int) -> None:
    """Equal gaps take next to nothing, so that the stream alone would be no proof of them."""
    part = CODECS[name].encode(torch.arange(1000), 2**40, True)
    with pytest.raises(WireFormatError):
        CODECS[name].decode(part, count, 2**40)


@pytest.mark.parametrize("name", each(["pco", "ans"]))
def test_equal_gaps_take_a_byte_for_every_1024(name: str) -> None:
    indices = torch.arange(0, 3 * 2**20, 3)
    part = CODECS[name].encode(indices, 3 * 2**20, True)
    assert part.numel() == 2**10 + 1
    assert torch.equal(CODECS[name].decode(part, 2**20, 3 * 2**20), indices)
    part[0] = 1  # the zeros in front are zeros
    with pytest.raises(WireFormatError):
        CODECS[name].decode(part, 2**20, 3 * 2**20)


@pytest.mark.parametrize(("name", "level"), [("pco", 13), ("pco", -1), ("zstd", 0), ("zstd", 20)])
def test_levels_out_of_range(name: str, level: int) -> None:
    with pytest.raises(RecipeError, match="level"):
        pieces("index")[name](level=level)
