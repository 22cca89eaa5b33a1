"""Collectives add up what the ranks selected. One per file; the contract is in `types`."""

from thinwire.collective.allgather import AllGather as AllGather
from thinwire.collective.cltk import CltK as CltK
from thinwire.collective.dense import Dense as Dense
from thinwire.collective.fewbits import FewBits as FewBits
from thinwire.collective.gtopk import GTopK as GTopK
from thinwire.collective.lowrank import LowRank as LowRank
from thinwire.collective.micro import Micro as Micro
from thinwire.collective.oktopk import OkTopK as OkTopK
from thinwire.collective.omnireduce import OmniReduce as OmniReduce
from thinwire.collective.sketch import SketchAllReduce as SketchAllReduce
from thinwire.collective.sparcml import SparCML as SparCML
from thinwire.collective.spardl import SparDL as SparDL
from thinwire.collective.union import UnionAllReduce as UnionAllReduce
from thinwire.collective.zen import Zen as Zen
from thinwire.types import Collective

COLLECTIVES: tuple[type[Collective], ...] = (
    Dense,
    FewBits,
    AllGather,
    GTopK,
    OkTopK,
    SparCML,
    OmniReduce,
    UnionAllReduce,
    CltK,
    Micro,
    Zen,
    SparDL,
    SketchAllReduce,
    LowRank,
)
