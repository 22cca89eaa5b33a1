"""Index codecs on a GPU: the same bytes, the same indices, and nothing left on the host."""

import pytest
import torch

from support.codec.cases import INDICES as CODECS
from support.codec.cases import each
from support.codec.index_cases import EVERY_NAME, EVERY_ROW, clustered, uniform
from thinwire.codec.index.bloom import POLICIES, BloomIndex
from thinwire.types import IndexCodec

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

BLOOMS: dict[str, IndexCodec] = {f"bloom-{policy}": BloomIndex(policy) for policy in POLICIES}
SETS = {
    "uniform": (uniform(1_000_000, 10_000), 1_000_000),
    "clustered": (clustered(300_000, 50, 90), 300_000),
    "all": (torch.arange(5000), 5000),
    "one": (torch.tensor([77]), 78),
    "none": (torch.empty(0, dtype=torch.int64), 10),
    "far": (uniform(2**40, 500), 2**40),
}


@pytest.mark.parametrize("form", SETS)
@pytest.mark.parametrize("name", each([*EVERY_NAME, *BLOOMS]))
def test_gpu_and_cpu_write_and_read_the_same(name: str, form: str) -> None:
    codec = (CODECS | BLOOMS)[name]
    indices, rows = SETS[form]
    if rows > 2**32 and (name in EVERY_ROW or name in BLOOMS):
        pytest.skip("looks at every row")
    part = codec.encode(indices, rows, True)
    gpu_part = codec.encode(indices.cuda(), rows, True)
    assert gpu_part.is_cuda
    assert torch.equal(gpu_part.cpu(), part)
    count = indices.numel()
    if isinstance(codec, BloomIndex):
        support, on_cpu = codec.support(gpu_part, count, rows), codec.support(part, count, rows)
        assert (support is None) == (on_cpu is None) == (name == "bloom-naive")
        if support is not None:
            assert torch.equal(support.cpu(), on_cpu)
            count = support.numel()
    out = codec.decode(gpu_part, count, rows)
    assert out.is_cuda
    assert torch.equal(out.cpu(), codec.decode(part, count, rows))
