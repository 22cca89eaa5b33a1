"""Ways into other people's training loops."""

from thinwire.frontends.ddp import Handle, compress

__all__ = ["Handle", "compress"]
