"""The papers by name."""

from thinwire.reproduce.experiment import Paper
from thinwire.reproduce.gtopk import PAPER_GTOPK

PAPERS: dict[str, Paper] = {paper.name: paper for paper in (PAPER_GTOPK,)}
