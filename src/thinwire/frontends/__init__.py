"""Ways into other people's training loops."""

from thinwire.frontends.ddp import compress
from thinwire.frontends.functional import sparse_all_reduce
from thinwire.frontends.handle import Handle

__all__ = ["Handle", "compress", "sparse_all_reduce"]
