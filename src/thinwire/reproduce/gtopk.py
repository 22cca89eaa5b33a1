"""gTop-k: Shi et al., "A distributed synchronous SGD algorithm with global top-k sparsification for
low bandwidth networks", ICDCS 2019.
"""

from math import log2

from thinwire.cost.network import Link
from thinwire.report.papers import IN_PART, NO, NOTHING, YES
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
from thinwire.reproduce.measures import (
    DENSE,
    Lesson,
    Measures,
    exchange,
    mean_points,
    seeds_apart,
)

ETHERNET = Link(alpha=0.436e-3, beta=9e-9)  # section IV.C
RHO = 0.001
WORKERS = (4, 8, 16, 32, 64, 128)
METHODS = ("dense", "topk", "gtopk")
WARM_UP = "warm_up={'steps': 5}"  # 0.25, 0.0725, 0.015, 0.004, for an epoch each
LOSS, SEEDS_APART = "held-out loss", "between seeds"

# Table VI and VII: batch, seconds on one GPU, and images per second on 32; parameters are the usual
# ones, which the paper does not print.
MODELS = {
    "VGG-16": (14_728_266, 128, 0.097, (403, 2016, 3020)),
    "ResNet-20": (272_474, 128, 0.146, (9212, 22272, 25280)),
    "AlexNet": (61_100_840, 64, 0.369, (39, 296, 505)),
    "ResNet-50": (25_557_032, 256, 4.842, (343, 978, 1251)),
}


def convergence(lesson: Lesson, density: float) -> Experiment:
    """One of figures 5 to 7: gTop-k beside dense."""
    name = f"gtopk({density:g}, {WARM_UP})"
    item = {"resnet-small": "figure 5", "embedding-small": "figure 6"}.get(lesson.model, "figure 7")
    stands_for = {
        "figure 5": ("convergence on Cifar-10", "A small ResNet on 8 × 8 digits"),
        "figure 6": ("convergence on ImageNet", "A model with most weights in one wide layer"),
        "figure 7": ("convergence of a language model", "A transformer that reads bytes"),
    }[item]

    def measure(measures: Measures) -> list[Panel]:
        runs = measures.learn(lesson, [name])
        curves = [
            Curve(shown, *mean_points(runs[run]))
            for run, shown in ((DENSE, "dense"), (name, "gtopk"))
        ]
        apart = Curve(SEEDS_APART, ["dense"], [seeds_apart(runs[DENSE])])
        return [Panel(LOSS, "step", "", curves), Panel(SEEDS_APART, "", "", [apart])]

    def judge(panels: dict[str, Panel]) -> list[Finding]:
        dense, ours = (panels[LOSS].curve(name).last for name in ("dense", "gtopk"))
        apart = panels[SEEDS_APART].curve(SEEDS_APART).last
        learnt = panels[LOSS].curve("dense").y[0] or 0.0
        share = (learnt - ours) / (learnt - dense)
        words = f"{ours:.3f} against {dense:.3f}; dense's seeds are {apart:.3f} apart"
        near = ours <= dense + 2 * apart or share > 0.995
        return [
            Finding(
                "gTop-k converges nearly as dense does, after four epochs of higher densities",
                "almost the same, or close to it",
                f"{words}: {share:.1%} of the way",
                YES if near else IN_PART if share > 0.95 else NO,
            )
        ]

    how = (
        f"{stands_for[1]} ({lesson.model}), {lesson.workers} workers, {lesson.steps} "
        f"steps, {lesson.seeds} seeds, SGD with momentum; ρ = {density:g} after a warm-up of four "
        "stages. Dense is PyTorch's bf16 hook."
    )
    return Experiment(item, stands_for[0], how, measure, judge)


def _table_one(method: str, numel: int, workers: int) -> float:
    """Seconds by the paper's own formulas, with words of 4 bytes (table I)."""
    alpha, word, k = ETHERNET.alpha, 4 * ETHERNET.beta, RHO * numel
    match method:
        case "dense":
            share = (workers - 1) / workers
            return 2 * (workers - 1) * alpha + 2 * share * numel * word
        case "topk":
            return log2(workers) * alpha + 2 * (workers - 1) * k * word
    return 2 * log2(workers) * alpha + 4 * k * log2(workers) * word


def _simulated(method: str, numel: int, workers: int) -> float:
    return exchange(method if method == "dense" else f"{method}({RHO})", numel, workers, ETHERNET)[
        0
    ]


def measure_allreduce(measures: Measures) -> list[Panel]:
    left = [
        Curve(method, WORKERS, [function(method, 25_000_000, p) for p in WORKERS], source)
        for method in METHODS
        for function, source in ((_table_one, PAPER), (_simulated, COMPUTED))
    ]
    sizes = [250_000 * 4**power for power in range(6)]
    right = [
        Curve(method, sizes, [function(method, n, 32) for n in sizes], source)
        for method in METHODS
        for function, source in ((_table_one, PAPER), (_simulated, COMPUTED))
    ]
    counts = measures.scale([2, 4, 8], [2])
    n = measures.scale(400_000, 4096)
    rows = measures.sync(["topk(0.01)", "gtopk(0.01)"], n, counts)
    sent = []
    for name in ("topk", "gtopk"):
        mine = [row for row in rows if row["recipe"].startswith(f"{name}(")]
        sent.append(Curve(name, counts, [row["socket_bytes_per_rank"] for row in mine]))
        model = [exchange(f"{name}(0.01)", n, p, ETHERNET)[1] for p in counts]
        sent.append(Curve(name, counts, model, COMPUTED))
    return [
        Panel("time at 100 MB", "workers", "s", left),
        Panel("time on 32 workers", "elements", "s", right),
        Panel("bytes sent per rank", "workers", "bytes", sent),
    ]


def judge_allreduce(panels: dict[str, Panel]) -> list[Finding]:
    time, size = panels["time at 100 MB"], panels["time on 32 workers"]
    ratio = {
        (source, p): time.curve("topk", source).at(p) / time.curve("gtopk", source).at(p)
        for source in (PAPER, COMPUTED)
        for p in (4, 32)
    }
    big = [size.curve("topk", s).last / size.curve("gtopk", s).last for s in (PAPER, COMPUTED)]
    sent = panels["bytes sent per rank"]
    off = max(
        abs(here / there - 1)
        for name in ("topk", "gtopk")
        for here, there in zip(sent.curve(name).y, sent.curve(name, COMPUTED).y, strict=True)
        if here and there
    )
    return [
        Finding(
            "with few workers top-k by allgather is slightly faster, with 32 it is much worse",
            f"{ratio[PAPER, 4]:.2f} and {ratio[PAPER, 32]:.2f} times gTop-k's time at P = 4 and 32",
            f"{ratio[COMPUTED, 4]:.2f} and {ratio[COMPUTED, 32]:.2f} times",
            verdict([ratio[COMPUTED, 4] < 1, ratio[COMPUTED, 32] > 1.5]),
        ),
        Finding(
            "the larger the message, the more gTop-k gains",
            f"{big[0]:.2f} times at 1 GB, 32 workers",
            f"{big[1]:.2f} times; bytes on sockets are within {off:.1%} of the computed ones",
            verdict([big[1] > 1.5, off < 0.1]),
        ),
    ]


def _throughput(model: str, method: str, workers: int) -> float:
    numel, batch, seconds, _ = MODELS[model]
    return workers * batch / (seconds + _simulated(method, numel, workers))


def measure_scaling(measures: Measures) -> list[Panel]:
    """Figure 10: efficiency is throughput over P times the single GPU's."""
    panels = []
    for model, (_, batch, seconds, published) in MODELS.items():
        workers = (4, 8, 16, 32)
        alone = batch / seconds
        curves = [
            Curve(m, workers, [_throughput(model, m, p) / (p * alone) for p in workers], COMPUTED)
            for m in METHODS
        ]
        curves += [
            Curve(method, [32], [images / (32 * alone)], PAPER)
            for method, images in zip(METHODS, published, strict=True)
        ]
        panels.append(Panel(f"scaling efficiency of {model}", "workers", "share", curves))
    return panels


def judge_scaling(panels: dict[str, Panel]) -> list[Finding]:
    drop, order, theirs = [], [], []
    for panel in panels.values():
        gtopk, topk, dense = (panel.curve(m, COMPUTED) for m in ("gtopk", "topk", "dense"))
        drop.append(gtopk.last / gtopk.y[0] if gtopk.y[0] else 0.0)
        order.append(gtopk.last > topk.last > dense.last)
        theirs.append(panel.curve("gtopk", PAPER).last)
    ours = [panel.curve("gtopk", COMPUTED).last for panel in panels.values()]
    return [
        Finding(
            "on 32 workers gTop-k scales better than top-k, and top-k better than dense",
            f"gTop-k's efficiency {min(theirs):.0%} to {max(theirs):.0%}",
            f"in {sum(order)} of {len(order)} models; {min(ours):.0%} to {max(ours):.0%}, on the "
            "wire that their α and β describe",
            verdict(order),
        ),
        Finding(
            "gTop-k's efficiency stays stable from 4 to 32 workers",
            "much more stable than the others",
            f"{min(drop):.0%} to {max(drop):.0%} of that with 4 is left",
            verdict(share > 0.85 for share in drop),
        ),
    ]


def measure_throughput(measures: Measures) -> list[Panel]:
    """Table VII."""
    pairs = (("gtopk over dense", "dense"), ("gtopk over topk", "topk"))
    panels = []
    for name, other in pairs:
        ours = [_throughput(m, "gtopk", 32) / _throughput(m, other, 32) for m in MODELS]
        place = METHODS.index(other)
        theirs = [published[2] / published[place] for *_, published in MODELS.values()]
        curves = [
            Curve(name, list(MODELS), theirs, PAPER),
            Curve(name, list(MODELS), ours, COMPUTED),
        ]
        panels.append(Panel(name, "model", "×", curves))
    return panels


def judge_throughput(panels: dict[str, Panel]) -> list[Finding]:
    findings = []
    for name, panel in panels.items():
        theirs, ours = panel.curve(name, PAPER).y, panel.curve(name, COMPUTED).y
        pairs = [(float(a or 0), float(b or 0)) for a, b in zip(theirs, ours, strict=True)]
        findings.append(
            Finding(
                f"throughput on 32 GPUs, {name}",
                " / ".join(f"{a:.1f}" for a, _ in pairs),
                " / ".join(f"{b:.1f}" for _, b in pairs)
                + " (VGG-16 / ResNet-20 / AlexNet / ResNet-50), from the paper's α and β alone",
                verdict(a / 1.5 <= b <= 1.5 * a for a, b in pairs),
            )
        )
    return findings


DENSITIES = (0.05, 0.01, 0.005, 0.001)
SWEEP = Lesson("resnet-small")


def measure_density(measures: Measures) -> list[Panel]:
    """Figure 12."""
    names = {f"gtopk({density:g}, {WARM_UP})": f"ρ = {density:g}" for density in DENSITIES}
    runs = measures.learn(SWEEP, list(names))
    shown = {DENSE: "dense"} | names
    curves = [Curve(shown[name], *mean_points(of)) for name, of in runs.items() if name in shown]
    return [Panel(LOSS, "step", "", curves)]


def judge_density(panels: dict[str, Panel]) -> list[Finding]:
    panel = panels[LOSS]
    start = panel.curve("dense").y[0] or 0.0
    way = {
        curve.series: (start - curve.last) / (start - panel.curve("dense").last)
        for curve in panel.curves
    }
    words = ", ".join(f"{share:.1%} at {name}" for name, share in way.items() if name != "dense")
    lowest = way[f"ρ = {DENSITIES[-1]:g}"]
    return [
        Finding(
            "even the lowest density does not have a big impact on convergence",
            "ρ = 0.0005 with models of 0.3 and 15 M weights",
            f"of dense's way down: {words}; of a model of 0.08 M weights, 0.001 leaves 78 a step",
            YES if lowest > 0.97 else IN_PART if lowest > 0.85 else NO,
        )
    ]


FIGURE_9 = (
    "The paper draws its own formulas (table I) with its α = 0.436 ms and β = 9 ns a byte. "
    "Computed are the rounds, messages and bytes of the code here, with the same α and β; bytes "
    "are counted on the sockets of real exchanges at P = 2, 4, 8 (ρ = 0.01)."
)
FIGURE_10 = "Computed: the single GPU's time (table VI) and the exchange in the α-β model."

PAPER_GTOPK = Paper(
    "gtopk",
    (
        Experiment(
            "figure 9", "time of the allreduce", FIGURE_9, measure_allreduce, judge_allreduce
        ),
        Experiment("figure 10", "scaling efficiency", FIGURE_10, measure_scaling, judge_scaling),
        Experiment(
            "table VII", "throughput on 32 GPUs", FIGURE_10, measure_throughput, judge_throughput
        ),
        convergence(Lesson("resnet-small"), 0.01),
        convergence(Lesson("embedding-small", steps=100, rate=3.0), 0.01),
        convergence(Lesson("transformer-small", workers=2, steps=100, rate=0.3), 0.01),
        Experiment(
            "figure 12",
            "convergence by density",
            "As figure 5, at four densities.",
            measure_density,
            judge_density,
        ),
    ),
    (
        Untested("figures 1 to 4", "how the tree works", "pictures", NOTHING),
        Untested("table I", "cost formulas", "drawn in figure 9", NOTHING),
        Untested("tables II to V", "notation, machines, data, models", "settings", NOTHING),
        Untested("figure 8", "α and β of their network", "their 1 Gbit Ethernet is not here"),
        Untested("table VI", "speed of a single GPU", "their GPU is not here"),
        Untested("figure 11", "time by phase on 32 GPUs", "their GPUs are not here"),
    ),
)
