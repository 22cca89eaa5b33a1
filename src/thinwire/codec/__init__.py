"""Selections as bytes: a codec for the indices, a codec for the values, one container for both.

`Pair` joins any of `INDEX_CODECS` with any of `VALUE_CODECS`; linear codecs stand by themselves.
"""

from thinwire.codec.container import Header as Header
from thinwire.codec.container import Message as Message
from thinwire.codec.container import pack as pack
from thinwire.codec.container import unpack as unpack
from thinwire.codec.index import INDEX_CODECS as INDEX_CODECS
from thinwire.codec.joint import Joint as Joint
from thinwire.codec.pair import Pair as Pair
from thinwire.codec.sketch import CountSketch as CountSketch
from thinwire.codec.value import VALUE_CODECS as VALUE_CODECS
from thinwire.types import LinearCodec

LINEAR_CODECS: tuple[type[LinearCodec], ...] = (CountSketch,)
