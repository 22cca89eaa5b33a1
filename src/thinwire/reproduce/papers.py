"""The papers by name."""

from thinwire.reproduce.deepreduce import PAPER_DEEPREDUCE
from thinwire.reproduce.dragonn import PAPER_DRAGONN
from thinwire.reproduce.experiment import Paper
from thinwire.reproduce.gtopk import PAPER_GTOPK
from thinwire.reproduce.ok_topk import PAPER_OK_TOPK
from thinwire.reproduce.s2 import PAPER_S2

_ALL = (PAPER_GTOPK, PAPER_OK_TOPK, PAPER_DRAGONN, PAPER_S2, PAPER_DEEPREDUCE)
PAPERS: dict[str, Paper] = {paper.name: paper for paper in _ALL}
