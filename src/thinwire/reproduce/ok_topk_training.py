"""Ok-Topk in training: ξ, counts, balance, accuracy (figures 5 to 7 and 9)."""

from statistics import fmean

from thinwire.reproduce.experiment import Curve, Finding, Panel, verdict
from thinwire.reproduce.measures import DENSE, Lesson, Measures, mean_points
from thinwire.results.file import Row

LESSON = Lesson("resnet-small", seeds=1)
OURS = "ok-topk(0.02, monitor_xi=4)"


def _series(runs: list[Row], what: str) -> tuple[list[int], list[float]]:
    """What the units told, added up over those of a step: DDP makes its buckets anew after one."""
    totals: dict[int, float] = {}
    for unit in runs[0]["series"].values():
        if what in unit:
            for step, value in zip(unit[what]["steps"], unit[what]["values"], strict=True):
                totals[step] = totals.get(step, 0.0) + value
    return sorted(totals), [totals[step] for step in sorted(totals)]


def measure_xi(measures: Measures) -> list[Panel]:
    runs = measures.learn(LESSON, [OURS])
    return [Panel("ξ", "step", "", [Curve("ok-topk", *_series(runs[OURS], "xi"))])]


def judge_xi(panels: dict[str, Panel]) -> list[Finding]:
    values = [value for value in panels["ξ"].curve("ok-topk").y if value is not None]
    return [
        Finding(
            "ξ is below P, so that the sparse allreduce does no harm to convergence",
            "below P for all three models, 16 and 32 workers",
            f"mean {fmean(values):.2f}, most {max(values):.2f} with P = {LESSON.workers}",
            verdict([max(values) < LESSON.workers]),
        )
    ]


SELECTED = "selected, over k"


def measure_counts(measures: Measures) -> list[Panel]:
    """Figure 6."""
    normal = "gaussiank(0.02)"
    runs = measures.learn(LESSON, [OURS, normal])
    curves = []
    for name, what in (
        ("local", "local_count"),
        ("global", "global_count"),
        ("gaussiank, predicted", "predicted_count"),
    ):
        steps, counts = _series(runs[normal if what == "predicted_count" else OURS], what)
        k = 0.02 * runs[OURS][0]["parameters"]
        curves.append(Curve(name, steps, [count / k for count in counts]))
    return [Panel(SELECTED, "step", "", curves)]


def judge_counts(panels: dict[str, Panel]) -> list[Finding]:
    off = {}
    for name in ("local", "global", "gaussiank, predicted"):
        values = [value for value in panels[SELECTED].curve(name).y if value is not None]
        off[name] = fmean(abs(value - 1) for value in values)
    last = panels[SELECTED].curve("gaussiank, predicted").last
    return [
        Finding(
            "local and global counts are within 11 % of k on average",
            "below 11 %; 1.4 % for BERT",
            f"{off['local']:.1%} local, {off['global']:.1%} global",
            verdict(off[name] < 0.11 for name in ("local", "global")),
        ),
        Finding(
            "Gaussiank is far off",
            "an order of magnitude too few",
            f"{off['gaussiank, predicted']:.0%} off on average, {last:.2f} k at the end",
            verdict([off["gaussiank, predicted"] > 0.25]),
        ),
    ]


REDUCE, GATHER = "fullest region over the mean", "fullest share over the mean"
NAIVE = "ok-topk(0.01, consensus='equal', balance='never')"


def measure_balance(measures: Measures) -> list[Panel]:
    """Figure 7: what the busiest rank has, over the mean."""
    counts = measures.scale([2, 4, 8], [2])
    found: dict[str, dict[str, list[float]]] = {REDUCE: {}, GATHER: {}}
    for workers in counts:
        lesson = Lesson("embedding-small", workers, 24, 3.0, 1)
        runs = measures.learn(lesson, ["ok-topk(0.01)", NAIVE])
        for label, name in (("balanced", "ok-topk(0.01)"), ("naive", NAIVE)):
            for panel, what in ((REDUCE, "reduce_imbalance"), (GATHER, "gather_imbalance")):
                values = _series(runs[name], what)[1]
                later = values[len(values) // 3 :]  # once there are counts to balance by
                found[panel].setdefault(label, []).append(fmean(later))
    return [
        Panel(name, "workers", "×", [Curve(label, counts, y) for label, y in curves.items()])
        for name, curves in found.items()
    ]


def judge_balance(panels: dict[str, Panel]) -> list[Finding]:
    gains = {
        name: [
            (naive or 0) / (even or 1)
            for naive, even in zip(panel.curve("naive").y, panel.curve("balanced").y, strict=True)
        ]
        for name, panel in panels.items()
    }
    words = {name: ", ".join(f"{gain:.2f}" for gain in each) for name, each in gains.items()}
    counts = ", ".join(f"{x}" for x in panels[REDUCE].curve("naive").x)
    return [
        Finding(
            "balanced regions make split-and-reduce faster, the more so the more workers",
            "1.13 to 1.75 times",
            f"the busiest rank has {words[REDUCE]} times less (P = {counts})",
            verdict([gains[REDUCE][-1] > 1.1, gains[REDUCE][-1] >= gains[REDUCE][0]]),
        ),
        Finding(
            "balanced shares make the allgatherv faster",
            "1.12 to 1.43 times, where they are needed",
            f"{words[GATHER]} times less",
            verdict([gains[GATHER][-1] > 1.1]),
        ),
    ]


ACCURACY = "held-out accuracy"


def measure_accuracy(measures: Measures) -> list[Panel]:
    """Figure 9."""
    runs = measures.learn(LESSON, [OURS, "topk(0.02)"])
    names = {DENSE: "dense", "topk(0.02)": "topk", OURS: "ok-topk"}
    curves = [Curve(s, *mean_points(runs[n], "held_out_hits")) for n, s in names.items()]
    return [Panel(ACCURACY, "step", "share", curves)]


def judge_accuracy(panels: dict[str, Panel]) -> list[Finding]:
    dense, ours = (panels[ACCURACY].curve(name).last for name in ("dense", "ok-topk"))
    return [
        Finding(
            "the accuracy is very close to dense's",
            "very close",
            f"{ours:.1%} against {dense:.1%} after {LESSON.steps} steps",
            verdict([ours > dense - 0.01]),
        )
    ]


SMALL = (
    f"A small ResNet on 8 × 8 digits, {LESSON.workers} workers, {LESSON.steps} steps, ρ = 0.02, "
    "SGD with momentum; one seed."
)
