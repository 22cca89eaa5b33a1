"""A benchmark of which one case fails on one rank, for the test of that."""

from thinwire.bench.sync import case as sync_case
from thinwire.lab.rank_main import Case, Message, ReportStep


def measure(case: Case, rank: int, report_step: ReportStep) -> Message:
    if case["recipe"] == "topk" and rank == 1:
        raise RuntimeError("this one fails")
    return sync_case.measure(case, rank, report_step)
