"""A Bloom filter of the indices: which they were, up to a few that they were not."""

import math
import struct
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from thinwire.codec.index.ascending import as_words, refuse_rows
from thinwire.codec.parts import as_bytes
from thinwire.errors import RecipeError, WireFormatError
from thinwire.kernels.bitmap import count_bits
from thinwire.kernels.bloom import MOST_BITS, Filter, drawn_order, insert, positives, resolve
from thinwire.settings import check_choice, check_range
from thinwire.types import IndexCodec

Policy = Literal["naive", "p0", "p1", "p2", "leftmost"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
_DRAWN = ("p1", "p2")  # from all positives
_SETTINGS = struct.Struct("<QIBBH")  # salt, size in bits, hashes, policy, zero
_MOST_HASHES = 64
_WORD = 64
_ROWS_A_BIT = 8192  # at most, so that nobody searches many rows on the word of a few bytes


@dataclass(frozen=True, slots=True)
class BloomIndex(IndexCodec):
    """DeepReduce, section 4: -log2(fpr)/ln 2 bits per index, 14.4 at the default FPR of 0.001.

    Whoever asks the filter about every row finds the indices and about fpr·rows others. A policy
    says which of these *positives* the values that travel belong to, `support`:

        p0        all of them; the only policy that loses no index
        p1        as many as there were indices, drawn at random
        p2        as many, those first that no other could have been taken for (Algorithm 1)
        leftmost  as many, the first ones (section 10.4)
        naive     the same, but values are not read again for them: from the first false positive
                  on, every value goes to a wrong place

    Deviations: bits come from a hash instead of a table, the same for 64 rows side by side (see
    `kernels.bloom`); and the salt, on which hashes and draws depend, travels along, so that the
    part can be read without knowing its address: run, step, tensor and rank.

    Time is proportional to the rows, of which more than 2^32 are refused. A filter has at least a
    bit for every 8,192 rows: more than it needs where fewer than one row in 10^5 was selected. P2
    runs on the host.

    Part: the filter in 64-bit words; then salt (u64), size in bits (u32), hashes (u8), policy (u8)
    and two zero bytes.
    """

    id = 14  # 9 hashed each row by itself
    name = "bloom"
    lossless = False

    policy: Policy = "p0"
    fpr: float = 0.001

    def __post_init__(self) -> None:
        check_choice("policy", self.policy, POLICIES)
        check_range("fpr", self.fpr, 2.0**-_MOST_HASHES, 1, open_high=True)

    def encode(self, indices: Tensor, rows: int, ordered: bool) -> Tensor:
        """The filter with a salt of zero."""
        return self.encode_seeded(indices, rows, ordered, seed=0)

    def encode_seeded(self, indices: Tensor, rows: int, ordered: bool, seed: int) -> Tensor:
        """The filter with the salt `seed`; the order of the indices is lost."""
        refuse_rows(rows, RecipeError)
        hashes = max(1, round(-math.log2(self.fpr)))
        # Not the optimum, ln(1/fpr)/ln²2 bits: what the FPR takes with a whole number of hashes.
        size = math.ceil(-hashes / math.log1p(-(self.fpr ** (1 / hashes))) * indices.numel())
        size = _WORD * math.ceil(max(size, _fewest_bits(rows)) / _WORD) if size else 0
        if size > MOST_BITS:
            raise RecipeError(f"{indices.numel()} indices take {size} bits, above {MOST_BITS}")
        words = insert(indices.contiguous(), size, hashes, seed).words
        packed = _SETTINGS.pack(seed, size, hashes, POLICIES.index(self.policy), 0)
        tail = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
        return torch.cat((as_bytes(words), tail.to(words.device)))

    def support(self, part: Tensor, count: int, rows: int) -> Tensor | None:
        """The ascending indices that a receiver of this part takes `count` indices for."""
        filter, policy = settings_of(part, rows)
        if policy == "naive":
            return None
        return choose(policy, filter, positives(filter, rows), count)

    def decode(self, part: Tensor, count: int, rows: int) -> Tensor:
        """The `count` indices of the support, where with P0 `count` is the size of all of it."""
        filter, policy = settings_of(part, rows)
        _check_bits(filter, policy, count)
        candidates = positives(filter, rows, most=None if policy in _DRAWN else count)
        if candidates.numel() < count or (policy == "p0" and candidates.numel() != count):
            raise WireFormatError(f"{count} rows must be positive, found {candidates.numel()}")
        return choose(policy, filter, candidates, count)


def choose(policy: Policy, filter: Filter, candidates: Tensor, count: int) -> Tensor:
    """Those of the ascending positives `candidates` that a policy takes for `count` indices."""
    if policy == "p0" or candidates.numel() <= count:
        return candidates
    if policy == "p1":
        return candidates[drawn_order(candidates, filter.salt)[:count]].sort().values
    if policy == "p2":
        return resolve(filter, candidates, count)
    return candidates[:count]


def settings_of(part: Tensor, rows: int) -> tuple[Filter, Policy]:
    """The filter and the policy in a part."""
    refuse_rows(rows, WireFormatError)
    if part.numel() < _SETTINGS.size:
        raise WireFormatError(f"settings take {_SETTINGS.size} bytes, found {part.numel()}")
    settings = bytes(part[-_SETTINGS.size :].tolist())
    salt, size, hashes, policy, zero = _SETTINGS.unpack(settings)
    if size > MOST_BITS or not 1 <= hashes <= _MOST_HASHES or policy >= len(POLICIES) or zero:
        raise WireFormatError(f"no such settings: {size} bits, {hashes} hashes, policy {policy}")
    words = as_words(part[: -_SETTINGS.size])
    if _WORD * words.numel() != size:
        raise WireFormatError(f"{size} bits must fill {words.numel()} words")
    if size and size < _fewest_bits(rows):
        raise WireFormatError(f"{rows} rows take {_fewest_bits(rows)} bits or more, found {size}")
    return Filter(words, size, hashes, salt), POLICIES[policy]


def _fewest_bits(rows: int) -> int:
    return -(-rows // _ROWS_A_BIT)


def _check_bits(filter: Filter, policy: Policy, count: int) -> None:
    """Refuse a filter that `count` indices cannot have made: any number of rows may be positive."""
    bits = count_bits(filter.words)
    if bits > count * filter.hashes:
        raise WireFormatError(f"{count} indices cannot set {bits} bits of {filter.hashes} each")
    # hashes = round(size/count·ln 2) or 1, unless the size is more than that. With P0, of which no
    # more than `count` are ever held, false ones are counted too.
    fewest = count * (filter.hashes - 0.5) / math.log(2) - 1 if filter.hashes > 1 else 0
    if policy in _DRAWN and filter.size < fewest:
        raise WireFormatError(f"{filter.size} bits are too few for {filter.hashes} hashes")
