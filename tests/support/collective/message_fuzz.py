"""Arbitrary bytes for what collectives read that is no single payload of a codec:

    PYTHONPATH=src:tests python -m support.collective.message_fuzz --messages 200000

Joint payloads of several tensors, lists of indices with their length and without, Zen's bitmaps and
the values behind them, shards of few bits, and Ok-Topk's messages that are framed in one: flipped,
cut short, extended, filled, random or spliced, with checksums that fit or no longer do. What must
come of each is a `WireFormatError` or what a sound one is read as: numbers of the right shape,
indices in range; in bounded time, and with no more memory than `fuzz.ROOM`.
"""

import argparse
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from support.codec.cases import context, random_sparse, random_values
from support.codec.damage import as_wire, resealed
from support.codec.fuzz import PATIENCE, limits
from support.codec.part_fuzz import altered_bytes
from thinwire.codec import Joint, Pair
from thinwire.codec.container import HEADER_BYTES
from thinwire.codec.index import BloomIndex, VarintIndex
from thinwire.codec.value import FitPolyValue, QsgdValue, QuantileValue, SignValue
from thinwire.collective._lists import pack_known, pack_list, unpack_known, unpack_list
from thinwire.collective.oktopk.balance import _framed, _unframed
from thinwire.collective.zen import _open, back_bytes
from thinwire.errors import WireFormatError
from thinwire.kernels.bitmap import set_bits
from thinwire.kernels.few_bits import Form, add_up_shards, dequantise_shards, quantise_shards
from thinwire.results.origin import commit
from thinwire.types import PADDING, Layout, Sparse

NUMEL = 900
LISTS = tuple(random_sparse(NUMEL, count, seed=count).indices for count in (0, 1, 40, 400))
LAYOUT = Layout(("w", "bias", "v"), (90, 7, 803), (False, True, False), each=True)
TOGETHER = replace(context(), tensor="w+2", layout=LAYOUT, numel=NUMEL, dtype=torch.float32)
JOINT = (
    Joint(Pair(value=QsgdValue())),
    Joint(Pair(value=SignValue())),
    Joint(Pair(VarintIndex(), QuantileValue())),
    Joint(Pair(BloomIndex(), FitPolyValue())),
)
FORMS = (Form(NUMEL, 2, 4, 16), Form(NUMEL, 2, 8, 128, rotation=5))
STAMP = 17


@dataclass(frozen=True)
class Family:
    """Sound messages, and who reads them: `read` must raise what it refuses, and check the rest."""

    sound: list[bytes]
    read: Callable[[Tensor, int], None]  # the number says which of the sound ones it was made of
    any_length: bool = True  # or both sides know it, and no other arrives


def families() -> dict[str, Family]:
    return {
        "joint payloads": Family(_joint_wires(), _read_joint),
        "lists": Family([_bytes(pack_list(one, NUMEL)) for one in LISTS], _read_list),
        "lists of known length": Family(
            [_bytes(pack_known(one, NUMEL)) for one in LISTS[1:]], _read_known, any_length=False
        ),
        "zen's bitmaps": Family(_bitmaps(), _read_bitmap),
        "few-bits' shards": Family(_shards(), _read_shards, any_length=False),
        "ok-topk's frames": Family(_frames(), _read_frame),
    }


def _bytes(wire: Tensor) -> bytes:
    return wire.numpy().tobytes()


def _sealed(data: bytes) -> Tensor:
    """With a checksum that fits, where there is room for one."""
    return resealed(data) if len(data) >= HEADER_BYTES and len(data) % 8 == 0 else as_wire(data)


def _joint_wires() -> list[bytes]:
    dense = random_values(NUMEL, torch.float32, 3)
    chosen = torch.cat((random_sparse(NUMEL, 40, seed=4).indices, torch.arange(90, 97))).unique()
    selections = (dense, Sparse(chosen, dense[chosen], NUMEL))
    return [_bytes(joint.encode(s, TOGETHER)) for joint in JOINT for s in selections]


def _read_joint(wire: Tensor, number: int) -> None:
    out = JOINT[number // 2].decode(_sealed(_bytes(wire)), TOGETHER)
    if isinstance(out, Sparse):
        _check_ascending(out.indices, NUMEL)
    assert (out.values if isinstance(out, Sparse) else out).dtype == torch.float32
    assert isinstance(out, Sparse) or out.shape == (NUMEL,)


def _read_list(wire: Tensor, number: int) -> None:
    _check_ascending(unpack_list(wire, NUMEL), NUMEL)


def _read_known(wire: Tensor, number: int) -> None:
    count = LISTS[number + 1].numel()
    (indices,) = unpack_known(wire[None], count, NUMEL, context())
    assert indices.numel() == count
    _check_ascending(indices[indices != PADDING], NUMEL)


def _bitmaps() -> list[bytes]:
    pair = Pair()
    return [
        _bytes(set_bits(one, NUMEL).view(torch.uint8))
        + _bytes(pair.encode(random_values(one.numel(), torch.float32, 1), context()))
        for one in LISTS
    ]


def _read_bitmap(wire: Tensor, number: int) -> None:
    end = back_bytes(NUMEL)
    sealed = torch.cat((wire[:end], _sealed(_bytes(wire[end:]))))
    out = _open(sealed, NUMEL, Pair(), context())
    assert out.values.shape == out.indices.shape
    _check_ascending(out.indices, NUMEL)


def _shards() -> list[bytes]:
    wires = []
    for form in FORMS:
        rows = quantise_shards(random_values(NUMEL, torch.float32, 2), form, 0)
        form.seal(rows, STAMP)
        wires.append(_bytes(rows))
    return wires


def _read_shards(wire: Tensor, number: int) -> None:
    """As whoever adds them up, and whoever gets the sum; half of them with a checksum that fits."""
    form, rows = FORMS[number], wire.view(2, -1)
    if int(wire[:8].sum()) % 2:
        form.seal(rows, STAMP)
    if not bool(form.sound(rows, STAMP)):
        raise WireFormatError("unsound")
    add_up_shards(rows, torch.zeros(NUMEL), form, 0)
    assert dequantise_shards(rows, form, torch.empty(NUMEL)).shape == (NUMEL,)


def _frames() -> list[bytes]:
    parts = [_bytes(Pair().encode(random_sparse(90, n, seed=n), context())) for n in (0, 3, 20)]
    return [_bytes(_framed([as_wire(part) for part in parts], torch.device("cpu")))]


def _read_frame(wire: Tensor, number: int) -> None:
    messages = _unframed(wire, 3)
    assert len(messages) == 3
    assert sum(message.numel() for message in messages) == wire.numel() - 3 * 8


def _check_ascending(indices: Tensor, below: int) -> None:
    if indices.numel():
        assert int(indices[0]) >= 0 and int(indices[-1]) < below
        assert bool((indices[1:] > indices[:-1]).all())


def altered(family: Family, draw: random.Random) -> tuple[Tensor, int]:
    """Other bytes, and which sound ones they were made of."""
    number = draw.randrange(len(family.sound))
    sound = family.sound[number]
    data = altered_bytes(sound, lambda: draw.choice(family.sound), draw)
    if not family.any_length:
        data = (data + sound[len(data) :])[: len(sound)]
    return as_wire(bytes(data)), number


def check(family: Family, wire: Tensor, number: int) -> str:
    """ "refused" or "decoded"; any other error for what nobody asked for."""
    try:
        family.read(wire.clone(), number)
    except WireFormatError:
        return "refused"
    return "decoded"


def fuzz(messages: int, seed: int = 0) -> Iterator[tuple[str, Counter[str], float]]:
    """So many for each family: its name, what came of them, and the seconds it took."""
    for name, family in families().items():
        draw, outcomes, began = random.Random(seed), Counter[str](), time.monotonic()
        for number, sound in enumerate(family.sound):
            family.read(as_wire(sound), number)  # and everything is compiled
        with limits():
            for turn in range(messages):
                wire, number = altered(family, draw)
                signal.setitimer(signal.ITIMER_REAL, PATIENCE)
                try:
                    outcomes[check(family, wire, number)] += 1
                except BaseException as error:
                    error.add_note(f"message {turn} of seed {seed} for {name}: {_bytes(wire)!r}")
                    raise
        yield name, outcomes, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="for each family")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"messages of collectives, seed {given.seed}, commit {commit()}:", flush=True)
    total = 0
    for name, outcomes, seconds in fuzz(given.messages, given.seed):
        total += outcomes.total()
        counts = " ".join(f"{outcomes[how]:9,} {how}" for how in ("refused", "decoded"))
        print(f"{name:26} {outcomes.total():9,} messages {counts} {seconds:6.0f} s", flush=True)
    print(f"{total:,} messages in all\n")


if __name__ == "__main__":
    main()
