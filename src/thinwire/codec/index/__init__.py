"""Index codecs, one per file; the contract is in `types`."""

from thinwire.codec.index.ans import AnsIndex as AnsIndex
from thinwire.codec.index.bitmap import BitmapIndex as BitmapIndex
from thinwire.codec.index.bloom import BloomIndex as BloomIndex
from thinwire.codec.index.chunk12 import Chunk12Index as Chunk12Index
from thinwire.codec.index.elias_fano import EliasFanoIndex as EliasFanoIndex
from thinwire.codec.index.huffman import HuffmanIndex as HuffmanIndex
from thinwire.codec.index.pco import PcoIndex as PcoIndex
from thinwire.codec.index.raw import RawIndex as RawIndex
from thinwire.codec.index.regional import RegionalIndex as RegionalIndex
from thinwire.codec.index.rice import RiceIndex as RiceIndex
from thinwire.codec.index.rle import RleIndex as RleIndex
from thinwire.codec.index.varint import VarintIndex as VarintIndex
from thinwire.codec.index.zstd import ZstdIndex as ZstdIndex
from thinwire.types import IndexCodec

INDEX_CODECS: tuple[type[IndexCodec], ...] = (
    RawIndex,
    RegionalIndex,
    Chunk12Index,
    RiceIndex,
    EliasFanoIndex,
    BitmapIndex,
    VarintIndex,
    RleIndex,
    HuffmanIndex,
    BloomIndex,
    PcoIndex,
    ZstdIndex,
    AnsIndex,
)
