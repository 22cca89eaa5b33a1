"""Index codecs, one per file."""

from thinwire.codec.index.ans import AnsIndex
from thinwire.codec.index.bitmap import BitmapIndex
from thinwire.codec.index.bloom import BloomIndex
from thinwire.codec.index.elias_fano import EliasFanoIndex
from thinwire.codec.index.huffman import HuffmanIndex
from thinwire.codec.index.pco import PcoIndex
from thinwire.codec.index.raw import RawIndex
from thinwire.codec.index.regional import RegionalIndex
from thinwire.codec.index.rice import RiceIndex
from thinwire.codec.index.rle import RleIndex
from thinwire.codec.index.varint import VarintIndex
from thinwire.codec.index.zstd import ZstdIndex

__all__ = [
    "AnsIndex",
    "BitmapIndex",
    "BloomIndex",
    "EliasFanoIndex",
    "HuffmanIndex",
    "PcoIndex",
    "RawIndex",
    "RegionalIndex",
    "RiceIndex",
    "RleIndex",
    "VarintIndex",
    "ZstdIndex",
]
