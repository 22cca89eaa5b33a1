"""Value codecs, one a file."""

from thinwire.codec.value.half import Bf16Value, Fp16Value
from thinwire.codec.value.qsgd import QsgdValue
from thinwire.codec.value.raw import RawValue
from thinwire.codec.value.sign import SignValue
from thinwire.codec.value.tern import TernValue

__all__ = ["Bf16Value", "Fp16Value", "QsgdValue", "RawValue", "SignValue", "TernValue"]
