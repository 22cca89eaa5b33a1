"""A kernel that the interpreter forgives and the compiler refuses: what two branches leave has to
be of one type.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# What a kernel takes are tensors and numbers.

import triton
import triton.language as tl


@triton.jit
def two_types(x, which):
    value = tl.load(x)
    if which > 0:
        value = value.to(tl.int64)
    tl.store(x, value.to(tl.float32))
