"""Ways into other people's training loops."""

from thinwire.frontends.compress import compress
from thinwire.frontends.functional import sparse_all_reduce
from thinwire.frontends.handle import Handle
from thinwire.frontends.local import Outer, outer
from thinwire.frontends.optimizer import Optimizer, optim
from thinwire.frontends.wrap import WrapHandle, wrap

__all__ = [
    "Handle",
    "Optimizer",
    "Outer",
    "WrapHandle",
    "compress",
    "optim",
    "outer",
    "sparse_all_reduce",
    "wrap",
]
