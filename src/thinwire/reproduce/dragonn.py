"""DRAGONN: Wang et al., "DRAGONN: distributed randomized approximate gradients of neural networks",
ICML 2022.
"""

from thinwire.cost.network import Link
from thinwire.report.papers import NOTHING, UNTESTED
from thinwire.reproduce.dragonn_kernels import judge_encoding, measure_encoding
from thinwire.reproduce.dragonn_training import (
    SMALL,
    judge_ablation,
    judge_convergence,
    judge_others,
    judge_target,
    measure_ablation,
    measure_convergence,
    measure_others,
    measure_target,
)
from thinwire.reproduce.experiment import (
    COMPUTED,
    PAPER,
    Curve,
    Experiment,
    Finding,
    Panel,
    Paper,
    Untested,
    verdict,
)
from thinwire.reproduce.measures import Measures, exchange

# ViT-B/16 on 16 V100s at 25 Gbit/s. The compute follows from the published speed-up of 2.81 without
# any overhead (section 2.4), and encoding from the time for 512 MB, 13.2 and 35.4 ms.
VIT, LINK = 86_600_000, Link.of(gbps=25, latency=2e-5)
ENCODED = {"DRAGONN": 13.2e-3 * VIT / 2**27, "DGC": 35.4e-3 * VIT / 2**27}
PUBLISHED = {"DRAGONN": 2.61, "DGC": 2.14}
SPEED = "speed over full synchronisation"


def _compute() -> float:
    dense, sparse = (exchange(name, VIT, 16, LINK)[0] for name in ("dense", "topk(0.001)"))
    return (dense - 2.81 * sparse) / 1.81


def _speedup(name: str, workers: int, density: float) -> float:
    dense = exchange("dense", VIT, workers, LINK)[0]
    sparse = exchange(f"topk({density:g})", VIT, workers, LINK)[0]
    return (_compute() + dense) / (_compute() + sparse + ENCODED[name])


def measure_speed(measures: Measures) -> list[Panel]:
    """Figure 3, ViT."""
    counts = (4, 8, 16)
    curves = [
        curve
        for name in ENCODED
        for curve in (
            Curve(name, counts, [_speedup(name, p, 0.001) for p in counts], COMPUTED),
            Curve(name, [16], [PUBLISHED[name]], PAPER),
        )
    ]
    return [Panel(SPEED, "workers", "×", curves)]


def judge_speed(panels: dict[str, Panel]) -> list[Finding]:
    ours = {name: panels[SPEED].curve(name, COMPUTED) for name in ENCODED}
    gains = [a / b for a, b in zip(ours["DRAGONN"].y, ours["DGC"].y, strict=True) if a and b]
    return [
        Finding(
            "ViT on 16 GPUs: DRAGONN is faster than DGC, and both than full synchronisation",
            "2.61 and 2.14 times full",
            f"{ours['DRAGONN'].last:.2f} and {ours['DGC'].last:.2f} times, from their encoding "
            "times and bandwidth",
            verdict(abs(ours[n].last / PUBLISHED[n] - 1) < 0.1 for n in ENCODED),
        ),
        Finding(
            "DRAGONN's gain over DGC grows with the GPUs",
            "grows",
            ", ".join(f"{gain:.2f}" for gain in gains) + " times with 4, 8, 16 workers, without "
            "decoding, which is what grows and has no published time",
            UNTESTED,
        ),
    ]


RATIOS = (0.0001, 0.001, 0.01, 0.1)


def measure_ratios(measures: Measures) -> list[Panel]:
    """Figure 8, ViT."""
    curves = [
        Curve(name, RATIOS, [_speedup(name, 16, ratio) for ratio in RATIOS], COMPUTED)
        for name in ENCODED
    ]
    dense = exchange("dense", VIT, 16, LINK)[0]
    few = [exchange(f"qsgd({bits})", VIT, 16, LINK)[0] for bits in (8, 4)]
    qsgd = [(_compute() + dense) / (_compute() + each) for each in few]
    return [
        Panel(SPEED, "density", "×", curves),
        Panel(f"{SPEED}, QSGD", "bits", "×", [Curve("QSGD", [8, 4], qsgd, COMPUTED)]),
    ]


def judge_ratios(panels: dict[str, Panel]) -> list[Finding]:
    ours, theirs = (panels[SPEED].curve(name, COMPUTED) for name in ("DRAGONN", "DGC"))
    qsgd = max(value for value in panels[f"{SPEED}, QSGD"].curve("QSGD", COMPUTED).y if value)
    gains = [a / b for a, b in zip(ours.y, theirs.y, strict=True) if a and b]
    return [
        Finding(
            "(no statement in the text) DRAGONN is the fastest at every compression ratio",
            "a figure without numbers in the text",
            f"{min(gains):.2f} to {max(gains):.2f} times DGC's speed; QSGD by allgather at most "
            f"{qsgd:.2f} times full, DRAGONN {ours.last:.2f} to {max(y for y in ours.y if y):.2f}",
            verdict([min(gains) > 1, qsgd < max(y for y in ours.y if y)]),
        )
    ]


SCALED = (
    "Computed in the α-β model: ViT-B/16, 25 Gbit/s, the compute that follows from the published "
    "speed-up without overhead, encoding by the times published for 512 MB."
)

PAPER_DRAGONN = Paper(
    "dragonn",
    (
        Experiment("figure 3", "training speed", SCALED, measure_speed, judge_speed),
        Experiment("figure 8", "speed by compression ratio", SCALED, measure_ratios, judge_ratios),
        Experiment(
            "figure 5",
            "encoding and decoding",
            "One core, the process's own time: (a) whole recipes at ρ = 0.001 (b) 4 M elements, "
            "0.001 of them from each worker.",
            measure_encoding,
            judge_encoding,
        ),
        Experiment("figure 4", "convergence", SMALL, measure_convergence, judge_convergence),
        Experiment("table 2", "time to an accuracy", SMALL, measure_target, judge_target),
        Experiment("figure 7", "other compressors", SMALL, measure_others, judge_others),
        Experiment(
            "figure 6",
            "ablation",
            "A small network on digits under DDP, 4 processes on the loopback, ρ = 0.05; the "
            "fastest of 30 steps.",
            measure_ablation,
            judge_ablation,
        ),
    ),
    (
        Untested("figure 1", "what DGC's compression costs", "16 V100s; figure 5 has ours"),
        Untested("figures 2 and 9", "how it works, and a prefix sum", "pictures", NOTHING),
        Untested("table 1", "operations by algorithm", "counted, not measured", NOTHING),
        Untested("figure 10", "BERT's speed and ablation on SQuAD", "16 V100s, no such data"),
    ),
)
