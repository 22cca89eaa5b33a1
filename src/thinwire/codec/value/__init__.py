"""Value codecs, one per file."""

from thinwire.codec.value.chunked import ChunkedValue
from thinwire.codec.value.deflate import DeflateValue
from thinwire.codec.value.fit_dexp import FitDexpValue
from thinwire.codec.value.fit_poly import FitPolyValue
from thinwire.codec.value.fp8 import Fp8Value
from thinwire.codec.value.half import Bf16Value, Fp16Value
from thinwire.codec.value.qsgd import QsgdValue
from thinwire.codec.value.quantile import QuantileValue
from thinwire.codec.value.raw import RawValue
from thinwire.codec.value.sign import SignValue
from thinwire.codec.value.tern import TernValue
from thinwire.codec.value.three_lc import ThreeLcValue
from thinwire.codec.value.zstd import ZstdValue

__all__ = [
    "Bf16Value",
    "ChunkedValue",
    "DeflateValue",
    "FitDexpValue",
    "FitPolyValue",
    "Fp8Value",
    "Fp16Value",
    "QsgdValue",
    "QuantileValue",
    "RawValue",
    "SignValue",
    "TernValue",
    "ThreeLcValue",
    "ZstdValue",
]
