"""The wire format is frozen: what was written once is written and read for ever."""

import hashlib

import pytest
import torch

from support.extras import skipped_without_its_package
from thinwire.codec import Joint
from thinwire.codec.container import HEADERS, VERSION, unpack
from thinwire.codec.pair import open_message
from thinwire.errors import WireFormatError
from thinwire.types import Sparse

from .make_golden import (
    CONTEXT,
    GOLDEN,
    JOINT_CONTEXT,
    JOINT_DENSE,
    JOINT_LAYOUT,
    JOINTS,
    NAMES,
    READ_ONLY,
    SELECTIONS,
    pair_of,
    path,
)

DRAWN = {
    "sparse": "e8c40b4741cf3f79",
    "unordered": "23a224ccb97892c7",
    "rows": "1bd6ce1589c3d1e6",
    "dense": "e8c40b4741cf3f79",
    "empty": "e3b0c44298fc1c14",
}
"""What the golden files of fit_dexp decode to, as digests of the values' bytes."""


def read(codec: str, form: str, version: int) -> torch.Tensor:
    data = path(codec, form, version).read_bytes()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


@pytest.mark.parametrize("version", HEADERS)
@pytest.mark.parametrize(("codec", "form"), NAMES)
def test_golden(codec: str, form: str, version: int) -> None:
    with skipped_without_its_package():
        pair = pair_of(codec)
    s = SELECTIONS[form]
    golden = read(codec, form, version)
    if version < VERSION:
        out = open_message(unpack(golden), pair.index, pair.value)
        with pytest.raises(WireFormatError, match="version 1 says neither step nor tensor"):
            pair.decode(golden, CONTEXT)
    else:
        out = pair.decode(golden, CONTEXT)
        assert codec in READ_ONLY or pair.encode(s, CONTEXT).tolist() == golden.tolist()
    assert isinstance(out, Sparse) is isinstance(s, Sparse)
    values, expected = out, s
    if isinstance(s, Sparse) and isinstance(out, Sparse):
        assert out.numel == s.numel
        values, expected = out.values, s.values
        if pair.index.lossless:
            assert torch.equal(out.indices, s.indices)
            assert out.ordered == s.ordered
        elif codec == "bloom-naive+raw":  # values in wrong places
            expected = s.sorted().values
        else:
            rows = s.to_dense().view(s.rows, s.width)[out.indices]
            expected = rows.view_as(values)
    assert isinstance(values, torch.Tensor)
    assert isinstance(expected, torch.Tensor)
    assert values.dtype == expected.dtype
    assert values.shape == expected.shape
    if codec == "raw+fit_dexp":
        # The file's fit was made on another machine, with another exp, so that the bound of a fit
        # made here says nothing of it. Decoding multiplies, and draws the same bits everywhere.
        assert hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16] == DRAWN[form]
        return
    error = (values - expected).abs().double().reshape(-1)
    assert (error <= pair.value.error_bound(expected.reshape(-1))).all()


def test_header_by_hand() -> None:
    """The layout, spelled out once so that another implementation can be written from it."""
    wire = path("raw+raw", "rows").read_bytes()
    assert wire[0:4] == b"THIN"
    assert wire[4:6] == (2).to_bytes(2, "little")  # version
    assert wire[6] == 0b110  # flags: 1 dense, 2 ordered, 4 rows
    assert wire[7] == 1  # float32
    assert wire[8:10] == (1).to_bytes(2, "little")  # index codec
    assert wire[10:12] == (1).to_bytes(2, "little")  # value codec
    assert wire[12:16] == (3).to_bytes(4, "little")  # width
    assert wire[16:24] == (18).to_bytes(8, "little")  # numel
    assert wire[24:32] == (2).to_bytes(8, "little")  # count
    assert wire[32:40] == (4).to_bytes(8, "little")  # index bytes
    assert wire[40:48] == (24).to_bytes(8, "little")  # value bytes
    assert wire[56:60] == (5).to_bytes(4, "little")  # step
    name = hashlib.blake2b(b"layer.weight", digest_size=8).digest()
    assert wire[60:64] == ((int.from_bytes(name, "little") >> 1) % 2**32).to_bytes(4, "little")
    assert wire[64:72] == (1).to_bytes(2, "little") + (4).to_bytes(2, "little") + bytes(4)
    assert len(wire) == 64 + 8 + 24


@pytest.mark.parametrize("codec", JOINTS)
def test_golden_joint(codec: str) -> None:
    joint, golden = Joint(pair_of(codec)), read(codec, "joint", VERSION)
    assert joint.encode(JOINTS[codec], JOINT_CONTEXT).tolist() == golden.tolist()
    out = joint.decode(golden, JOINT_CONTEXT)
    whole = out.to_dense() if isinstance(out, Sparse) else out
    assert whole.shape == JOINT_DENSE.shape
    for _, start, end, past in JOINT_LAYOUT.parts():
        assert not past or torch.equal(whole[start:end], JOINT_DENSE[start:end])


def test_joint_wire_by_hand() -> None:
    """As `test_header_by_hand`: the table, and where the parts are that it tells of."""
    wire = path("raw+sign", "joint").read_bytes()
    assert wire[6] == 0b10011  # flags: 1 dense, 2 ordered, 16 joint
    assert wire[16:24] == wire[24:32] == (39).to_bytes(8, "little")  # numel and count
    assert wire[32:40] == (3 * 24).to_bytes(8, "little")  # the table's bytes
    rows = [(5, 0, 9), (20, 0, 11), (11, 0, 10)]  # count, index bytes, value bytes: a scale, bits
    table = b"".join(number.to_bytes(8, "little") for row in rows for number in row)
    assert wire[64:136] == table
    assert wire[136:152] == JOINT_DENSE[5:8].numpy().tobytes() + bytes(4)  # let past, as they are
    signs = [wire[start + 8 : start + 16] for start in (152, 168, 184)]
    assert [int.from_bytes(bits, "little") for bits in signs] == [
        sum(1 << i for i, value in enumerate(JOINT_DENSE[start:end].tolist()) if value < 0)
        for start, end in ((0, 5), (8, 28), (28, 39))
    ]
    assert len(wire) == 200


def test_no_golden_file_is_orphaned() -> None:
    single = {path(*name, version).name for name in NAMES for version in HEADERS}
    joint = {path(codec, "joint").name for codec in JOINTS}
    assert {file.name for file in GOLDEN.iterdir()} == single | joint
