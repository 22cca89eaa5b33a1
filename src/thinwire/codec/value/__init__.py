"""Value codecs, one per file; the contract is in `types`."""

from thinwire.codec.value.centroid2 import Centroid2Value as Centroid2Value
from thinwire.codec.value.chunked import ChunkedValue as ChunkedValue
from thinwire.codec.value.deflate import DeflateValue as DeflateValue
from thinwire.codec.value.fit_dexp import FitDexpValue as FitDexpValue
from thinwire.codec.value.fit_poly import FitPolyValue as FitPolyValue
from thinwire.codec.value.fp8 import Fp8Value as Fp8Value
from thinwire.codec.value.half import Bf16Value as Bf16Value
from thinwire.codec.value.half import Fp16Value as Fp16Value
from thinwire.codec.value.qsgd import QsgdValue as QsgdValue
from thinwire.codec.value.quantile import QuantileValue as QuantileValue
from thinwire.codec.value.raw import RawValue as RawValue
from thinwire.codec.value.sign import SignValue as SignValue
from thinwire.codec.value.tern import TernValue as TernValue
from thinwire.codec.value.three_lc import ThreeLcValue as ThreeLcValue
from thinwire.codec.value.zstd import ZstdValue as ZstdValue
from thinwire.types import ValueCodec

VALUE_CODECS: tuple[type[ValueCodec], ...] = (
    RawValue,
    Fp16Value,
    Bf16Value,
    SignValue,
    TernValue,
    QsgdValue,
    Fp8Value,
    DeflateValue,
    ZstdValue,
    ChunkedValue,
    Centroid2Value,
    QuantileValue,
    FitPolyValue,
    FitDexpValue,
    ThreeLcValue,
)
