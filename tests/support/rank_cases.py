"""What ranks do in the tests of `lab.ranks`: add a number up over all ranks, or fail."""

import os
import signal

import torch
import torch.distributed as dist

from thinwire.lab.rank_main import Case, Message, ReportStep


def measure(case: Case, rank: int, report_step: ReportStep) -> Message:
    if case.get("fails") == rank:
        raise RuntimeError("this one fails")
    if case.get("hangs"):
        signal.pause()
    total = torch.tensor(case["number"], device=case.get("device", "cpu"))
    dist.all_reduce(total)
    report_step(f"step of {case['number']}")
    return {"sum": int(total), "rank": rank, "pid": os.getpid()}
