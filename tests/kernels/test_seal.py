"""A wire's header and checksum: the same from all implementations, and no damage is overlooked."""

import pytest
import torch
from torch import Tensor

from support.implementations import Case, cases
from thinwire.kernels.checksum import checksum
from thinwire.kernels.seal import ADDRESS, HEADER_WORDS, SUM, is_sealed, reference, seal

everywhere = pytest.mark.parametrize("case", [p for p in cases("seal") if "numba" not in p.id])
FRONT = torch.tensor([3, -(2**62), 5, 6, 7, 8, 99, 0])
WORD = torch.tensor(-(2**63) + 12345)
LENGTHS = [64, 72, 64 + 8 * 300, 64 + 8 * 5000]
GAPS = [(65, 72), (66, 72)]


def wires(rows: int, length: int) -> Tensor:
    draw = torch.Generator().manual_seed(length)
    return torch.randint(256, (rows, length), generator=draw, dtype=torch.uint8)


@everywhere
@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("length", LENGTHS)
def test_all_are_the_reference(case: Case, rows: int, length: int) -> None:
    gaps = GAPS[: length // 72]
    expected, ours = wires(rows, length), wires(rows, length).to(case.device)
    reference.seal(expected, FRONT, WORD, gaps)
    case.run(seal, ours, FRONT, WORD, gaps)
    assert torch.equal(ours.cpu(), expected)
    sound = case.run(is_sealed, ours, FRONT, WORD)
    assert bool(sound) and sound.dim() == 0 and sound.dtype == torch.bool


@everywhere
def test_the_checksum_is_that_of_all_other_words(case: Case) -> None:
    wire = wires(1, LENGTHS[2]).to(case.device)
    case.run(seal, wire, FRONT, WORD, [(70, 72), (100, 104)])
    words = wire.cpu().view(torch.int64)[0]
    others = words.clone()
    others[SUM] = 0
    assert int(words[SUM]) - FRONT[SUM] == int(checksum(others)) - int(checksum(FRONT[:SUM]))
    assert words[ADDRESS] == WORD
    assert not wire[0, 70:72].any() and not wire[0, 100:104].any()


@everywhere
@pytest.mark.parametrize("word", [0, SUM, ADDRESS, HEADER_WORDS, -1])
@pytest.mark.parametrize("row", [0, 69])
def test_no_damage_is_overlooked(case: Case, word: int, row: int) -> None:
    wire = wires(70, LENGTHS[2]).to(case.device)
    case.run(seal, wire, FRONT, WORD)
    wire.view(torch.int64)[row, word] ^= 1 << 40
    assert not case.run(is_sealed, wire, FRONT, WORD)


@everywhere
def test_of_another_step_or_header_it_is_refused(case: Case) -> None:
    wire = wires(2, LENGTHS[1]).to(case.device)
    case.run(seal, wire, FRONT, WORD)
    assert not case.run(is_sealed, wire, FRONT, WORD + 1)
    assert not case.run(is_sealed, wire, FRONT + 1, WORD)
