"""DeepReduce: Xu et al., "DeepReduce: a sparse-tensor communication framework for federated deep
learning", NeurIPS 2021.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from thinwire.bench.codecs.data import gradients
from thinwire.codec import Pair
from thinwire.codec.index import BitmapIndex
from thinwire.codec.value import FitPolyValue
from thinwire.comm import GroupCommunicator
from thinwire.cookbook.notation import build_pieces
from thinwire.kernels.exact_topk import largest
from thinwire.report.papers import NOTHING
from thinwire.reproduce.deepreduce_training import (
    LESSON,
    judge_fits,
    judge_fpr,
    judge_ncf,
    judge_policies,
    judge_tradeoff,
    judge_volumes,
    measure_fits,
    measure_fpr,
    measure_ncf,
    measure_policies,
    measure_tradeoff,
    measure_volumes,
)
from thinwire.reproduce.experiment import (
    COMPUTED,
    Curve,
    Experiment,
    Finding,
    Panel,
    Paper,
    Untested,
    verdict,
)
from thinwire.reproduce.measures import Measures
from thinwire.types import ExchangeContext, Sparse

BITS = "bits"


def _context(dense: Tensor | None = None) -> ExchangeContext:
    return ExchangeContext("gradient", 0, 0, GroupCommunicator(), source=dense)


def measure_example(measures: Measures) -> list[Panel]:
    """Figure 1: eight numbers, four of them zero, the others on a line."""
    dense = torch.tensor([0.0, 4.0, 4.6, 0.0, 5.2, 0.0, 0.0, 5.8])
    chosen = dense.nonzero().view(-1)
    pair = Pair(BitmapIndex(), FitPolyValue(degree=1, pieces=1))
    wire = pair.encode(Sparse(chosen, dense[chosen], 8), _context())
    back = pair.decode(wire, _context())
    assert isinstance(back, Sparse)
    worst = float((back.to_dense() - dense).abs().max())
    forms = ["dense", "keys and values", "bitmap and line", "bitmap and line on our wire"]
    bits = [8 * 32.0, 4 * 64.0, 8 + 2 * 32.0, 8.0 * wire.numel()]
    return [
        Panel(BITS, "", "", [Curve("", forms, bits)]),
        Panel("largest error", "", "", [Curve("", ["bitmap and line"], [worst])]),
    ]


def judge_example(panels: dict[str, Panel]) -> list[Finding]:
    bits, worst = panels[BITS].curve(""), panels["largest error"].curve("").last
    return [
        Finding(
            "8 bits and two parameters give back the whole tensor",
            "72 bits against 256",
            f"72 bits of content, largest error {worst:.1g}; on our wire "
            f"{bits.at('bitmap and line on our wire'):.0f}, with header, checksum and alignment",
            verdict([worst < 1e-5, bits.at("bitmap and line on our wire") < 256]),
        )
    ]


PAIRS = {
    "Top-r": "raw+raw",
    "BF-P0": "bloom('p0', fpr=0.001)+raw",
    "BF-P1": "bloom('p1', fpr=0.001)+raw",
    "BF-P2": "bloom('p2', fpr=0.001)+raw",
    "Fit-Poly": "raw+fit_poly",
    "Fit-DExp": "raw+fit_dexp",
    "QSGD": "raw+qsgd(7)",
    "BF-P2 and Fit-Poly": "bloom('p2', fpr=0.001)+fit_poly",
    "BF-P0 and QSGD": "bloom('p0', fpr=0.001)+qsgd(7)",
    "SKCompress": "huffman+quantile(bits=6)",
    "(ours) Rice and QSGD": "rice+qsgd(7)",
}
CONVOLUTION = 36_864
VOLUME, ENCODE, DECODE = "bytes over dense's", "time to encode", "time to decode"


def _fastest(work: Callable[[], object], calls: int) -> float:
    """Of a few calls after the first, the process's own seconds."""
    work()
    times = []
    for _ in range(calls):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def _coded(codec: str, dense: Tensor, chosen: Tensor, calls: int) -> tuple[float, float, float]:
    """Bytes over the dense tensor's, and seconds to encode and to decode."""
    pair, ctx = build_pieces({"codec": codec})["codec"], _context(dense)
    s = Sparse(chosen, dense[chosen], dense.numel())
    wire = pair.encode(s, ctx)
    encode = _fastest(partial(pair.encode, s, ctx), calls)
    decode = _fastest(partial(pair.decode, wire, ctx), calls)
    return wire.numel() / (4 * dense.numel()), encode, decode


def measure_codecs(measures: Measures) -> list[Panel]:
    """Figure 10: the largest 1 % of a gradient of 36,864 elements."""
    step = measures.scale(30, 1)
    ((_, gradient),) = gradients("digits", frozenset([step]), seed=0)
    dense = gradient[-CONVOLUTION - 2000 : -2000].contiguous()
    chosen = largest(dense, CONVOLUTION // 100)[0].sort().values
    calls = measures.scale(15, 1)
    columns = list(zip(*(_coded(c, dense, chosen, calls) for c in PAIRS.values()), strict=True))
    units = ((VOLUME, "share"), (ENCODE, "s"), (DECODE, "s"))
    return [
        Panel(name, "", unit, [Curve("", list(PAIRS), each)])
        for (name, unit), each in zip(units, columns, strict=True)
    ]


def judge_codecs(panels: dict[str, Panel]) -> list[Finding]:
    volume, encode, decode = (panels[name].curve("") for name in (VOLUME, ENCODE, DECODE))
    papers = [name for name in PAIRS if not name.startswith("(")]
    theirs = [name for name in papers if name not in ("Top-r", "SKCompress")]
    larger = [name for name in theirs if volume.at(name) >= volume.at("Top-r")]
    both = {name: encode.at(name) + decode.at(name) for name in ("SKCompress", "QSGD")}
    slower = both["SKCompress"] / both["QSGD"]
    return [
        Finding(
            "all versions send fewer bytes than plain Top-r",
            "bars below Top-r's",
            ("all" if not larger else f"all but {', '.join(larger)}")
            + f"; {min(volume.at(n) for n in theirs) / volume.at('Top-r'):.0%} of it at best",
            verdict(name not in larger for name in theirs),
        ),
        Finding(
            "SKCompress sends least",
            "the lowest bar",
            f"{volume.at('SKCompress'):.2%} of dense; the best other "
            f"{min(volume.at(n) for n in theirs):.2%}",
            verdict([volume.at("SKCompress") < min(volume.at(n) for n in theirs)]),
        ),
        Finding(
            "SKCompress is three orders of magnitude slower than QSGD",
            "1,000 times",
            f"{slower:.1f} times: {1e6 * both['SKCompress']:.0f} µs, {1e6 * both['QSGD']:.0f} µs",
            verdict([slower > 100]),
        ),
    ]


RATES = ("100 Mbit/s", "1 Gbit/s", "10 Gbit/s")
NUMEL, WORKERS = 1_000_000, 4
TIME = "time of an exchange"


def measure_breakdown(measures: Measures) -> list[Panel]:
    """Figure 11: a gradient with 40 % zeros, coding measured, the wire computed."""
    n = measures.scale(NUMEL, 10_000)
    draw = torch.Generator().manual_seed(0)
    dense = torch.randn(n, generator=draw)
    dense[torch.randperm(n, generator=draw)[: 2 * n // 5]] = 0
    chosen = dense.nonzero().view(-1)
    share, encode, decode = _coded(
        "bloom('p0', fpr=0.6)+qsgd(7)", dense, chosen, measures.scale(4, 1)
    )
    slow = [8 * 4 * n / bits for bits in (1e8, 1e9, 1e10)]  # all of it, once
    coding = encode + WORKERS * decode
    whole = [2 * (WORKERS - 1) / WORKERS * each for each in slow]
    coded = [coding + (WORKERS - 1) * share * each for each in slow]
    return [
        Panel(
            TIME,
            "link",
            "s",
            [
                Curve("allreduce", RATES, whole, COMPUTED),
                Curve("BF-P0 and QSGD", RATES, coded, "coding measured, wire computed"),
                Curve("coding alone", RATES, [coding] * len(RATES)),
            ],
        )
    ]


def judge_breakdown(panels: dict[str, Panel]) -> list[Finding]:
    whole = panels[TIME].curve("allreduce", COMPUTED)
    coded = panels[TIME].curve("BF-P0 and QSGD", "coding measured, wire computed")
    gains = {rate: whole.at(rate) / coded.at(rate) for rate in RATES}
    words = ", ".join(f"{gain:.2f} times at {rate}" for rate, gain in gains.items())
    return [
        Finding(
            "compression pays only where communication is slow against computing",
            "speed-ups at 100 Mbit/s that shrink towards 10 Gbit/s",
            words,
            verdict([gains["100 Mbit/s"] > 1.2, gains["10 Gbit/s"] < 1]),
        )
    ]


SMALL = (
    f"A small ResNet on 8 × 8 digits, {LESSON.workers} workers, {LESSON.steps} steps, top-r of "
    "1 %, two seeds. The baseline is PyTorch's bf16 hook; volumes are over float32's."
)

PAPER_DEEPREDUCE = Paper(
    "deepreduce",
    (
        Experiment("figure 1", "an example", "The paper's.", measure_example, judge_example),
        Experiment(
            "figure 10",
            "volume and time of codecs",
            "The largest 1 % of 36,864 elements of a gradient in training (the digits' network); "
            "one core, the process's own time. Whole payloads, with their headers of 64 bytes.",
            measure_codecs,
            judge_codecs,
        ),
        Experiment(
            "figure 11",
            "time by network",
            "1 M elements, 40 % zeros, 4 workers: coding on one core, the wire by its rate alone.",
            measure_breakdown,
            judge_breakdown,
        ),
        Experiment(
            "table 2",
            "NCF, sparse by itself",
            "A neural collaborative filter on ratings that are made by the command (256 users, 512 "
            "things); 2 workers, 200 steps of AdamW, two seeds; 10 of 100.",
            measure_ncf,
            judge_ncf,
        ),
        Experiment("figure 7", "convergence by policy", SMALL, measure_policies, judge_policies),
        Experiment("figure 8", "convergence of the fits", SMALL, measure_fits, judge_fits),
        Experiment("figure 6", "false positive rates", SMALL, measure_fpr, judge_fpr),
        Experiment("figure 9", "stand-alone methods", SMALL, measure_tradeoff, judge_tradeoff),
        Experiment("figure 15", "volume and accuracy", SMALL, measure_volumes, judge_volumes),
    ),
    (
        Untested("figures 2 to 5, 12 to 14", "how it works", "pictures", NOTHING),
        Untested("tables 1 and 3", "models and methods", "settings", NOTHING),
    ),
)
