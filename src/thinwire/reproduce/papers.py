"""The papers by name."""

from thinwire.reproduce.experiment import Paper
from thinwire.reproduce.gtopk import PAPER_GTOPK
from thinwire.reproduce.ok_topk import PAPER_OK_TOPK

PAPERS: dict[str, Paper] = {paper.name: paper for paper in (PAPER_GTOPK, PAPER_OK_TOPK)}
