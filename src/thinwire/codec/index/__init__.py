"""Index codecs, one a file."""

from thinwire.codec.index.raw import RawIndex

__all__ = ["RawIndex"]
