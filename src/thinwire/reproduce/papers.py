"""The papers by name."""

from thinwire.reproduce.experiment import Paper
from thinwire.reproduce.gtopk import PAPER_GTOPK
from thinwire.reproduce.ok_topk import PAPER_OK_TOPK
from thinwire.reproduce.s2 import PAPER_S2

PAPERS: dict[str, Paper] = {paper.name: paper for paper in (PAPER_GTOPK, PAPER_OK_TOPK, PAPER_S2)}
