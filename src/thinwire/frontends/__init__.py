"""Ways into other people's training loops."""

from thinwire.frontends.compress import compress
from thinwire.frontends.functional import sparse_all_reduce
from thinwire.frontends.handle import Handle
from thinwire.frontends.optimizer import Optimizer, optim

__all__ = ["Handle", "Optimizer", "compress", "optim", "sparse_all_reduce"]
