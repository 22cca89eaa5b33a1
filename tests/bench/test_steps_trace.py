"""A profile becomes spans: kernels by what launched them, and one span for what belongs together.

Covers bench/steps/trace.py.
"""

from typing import Any

import torch

from thinwire.bench.steps.trace import record, spans


def event(cat: str, name: str, ts: float, dur: float, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


GPU = [
    event("user_annotation", "step::forward", 900, 50, 1),
    event("cuda_runtime", "cudaLaunchKernel", 910, 5, 1, correlation=6),
    event("kernel", "embed", 920, 20, 7, stream=7, correlation=6),
    event("cuda_runtime", "cudaLaunchKernel", 1900, 5, 2, correlation=7),  # ours, in no range
    event("kernel", "isfinite", 1980, 10, 20, stream=20, correlation=7),
    event("user_annotation", "step::backward", 1000, 1000, 1),
    event("user_annotation", "thinwire::exchange", 1200, 400, 2),
    event("user_annotation", "thinwire::select", 1300, 100, 2),  # within the exchange
    event("user_annotation", "step::optimizer", 2000, 100, 1),
    event("cuda_runtime", "cudaLaunchKernel", 1010, 5, 3, correlation=1),  # of autograd's thread
    event("cuda_runtime", "cudaLaunchKernel", 1020, 5, 3, correlation=2),
    event("cuda_driver", "cuLaunchKernel", 1310, 5, 2, correlation=3),
    event("cuda_runtime", "cudaLaunchKernel", 1450, 5, 2, correlation=4),
    event("cuda_runtime", "cudaLaunchKernel", 2010, 5, 1, correlation=5),
    event("kernel", "gemm", 1050, 100, 7, stream=7, correlation=1),
    event("kernel", "gemm", 1160, 91, 7, stream=7, correlation=2),
    event("kernel", "compact", 1320, 50, 20, stream=20, correlation=3),
    event("kernel", "ncclDevKernel_AllGather", 1460, 500, 21, stream=21, correlation=4),
    event("gpu_memcpy", "Memcpy DtoD", 2300, 10, 7, stream=7, correlation=5),
    event("cpu_op", "aten::mm", 1000, 10, 3),
    {"ph": "M", "name": "process_name"},
]


def test_kernels_are_told_by_the_range_that_launched_them() -> None:
    found = [(span["stream"], span["what"], span["start"], span["end"]) for span in spans(GPU)]
    assert found == [
        ("stream 7", "forward", 2e-05, 4e-05),
        ("stream 7", "backward", 0.00015, 0.000351),  # two kernels, a few microseconds apart
        ("stream 20", "select", 0.00042, 0.00047),
        ("stream 21", "exchange", 0.00056, 0.00106),
        ("stream 20", "other", 0.00108, 0.00109),
        ("stream 7", "optimizer", 0.0014, 0.00141),
    ]


def test_a_profile_without_ranges_has_no_spans() -> None:
    assert spans([e for e in GPU if e.get("cat") != "user_annotation"]) == []


def test_on_the_cpu_spans_are_what_threads_did() -> None:
    def step() -> None:
        with torch.profiler.record_function("step::forward"):
            x = torch.ones(200, 200, requires_grad=True)
            y = (x @ x).sum()
        with torch.profiler.record_function("step::backward"):
            y.backward()

    found = record(step, lambda: 0.0, torch.device("cpu"))
    assert {span["what"] for span in found} == {"forward", "backward"}
    assert all(0 <= span["start"] < span["end"] for span in found)
