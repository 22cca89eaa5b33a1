"""Linear codecs: payloads that allreduce can add."""

from thinwire.codec.linear.sketch import CountSketch

LINEAR_CODECS: dict[str, type] = {"sketch": CountSketch}

__all__ = ["LINEAR_CODECS", "CountSketch"]
