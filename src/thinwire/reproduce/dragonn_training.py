"""DRAGONN in training: convergence, other compressors, and what its parts save (figures 4, 6 and 7,
table 2).
"""

from statistics import fmean

from thinwire.report.papers import IN_PART, NO, YES
from thinwire.reproduce.experiment import APART, Curve, Finding, Panel, apart, verdict
from thinwire.reproduce.measures import DENSE, Lesson, Measures, mean_points, sent_per_step
from thinwire.results.curves import crossing

LESSON = Lesson("resnet-small", workers=2, steps=60)
LEARNT = {
    DENSE: "FULL",
    "topk(0.01)": "TopK",
    "dgc(0.01)": "DGC",
    "dragonn(0.01)": "DRAGONN",
    "signsgd": "SignSGD",
    "randomk(0.01)": "Random",
}
LOSS = "held-out loss"


def _learnt(measures: Measures, names: list[str]) -> Panel:
    runs = measures.learn(LESSON, [name for name in names if name != DENSE])
    curves = [Curve(LEARNT[name], *mean_points(runs[name])) for name in names]
    return Panel(LOSS, "step", "", curves)


def measure_convergence(measures: Measures) -> list[Panel]:
    names = [DENSE, "topk(0.01)", "dgc(0.01)", "dragonn(0.01)"]
    panel = _learnt(measures, names)
    runs = measures.learn(LESSON, names[1:])
    return [panel, apart(runs, {name: LEARNT[name] for name in names}, "held_out_loss")]


def judge_convergence(panels: dict[str, Panel]) -> list[Finding]:
    last = {curve.series: curve.last for curve in panels[LOSS].curves}
    start = panels[LOSS].curve("FULL").y[0] or 0.0
    way = {name: (start - loss) / (start - last["FULL"]) for name, loss in last.items()}
    words = ", ".join(f"{way[name]:.1%} {name}" for name in ("DRAGONN", "DGC", "TopK"))
    chance = max(y or 0.0 for y in panels[APART].curve("").y)
    return [
        Finding(
            "DRAGONN and TopK come nearer to full synchronisation than DGC, step by step",
            "curves above DGC's",
            f"of FULL's way down: {words}; losses of two seeds are up to {chance:.3f} apart",
            verdict([way["DRAGONN"] > way["DGC"], way["TopK"] > way["DGC"]]),
        ),
        Finding(
            "DRAGONN converges as full synchronisation does",
            "preserved",
            f"loss {last['DRAGONN']:.3f} against {last['FULL']:.3f}",
            YES if way["DRAGONN"] > 0.99 else IN_PART if way["DRAGONN"] > 0.9 else NO,
        ),
    ]


STEPS = "steps to DGC's last loss"


def measure_target(measures: Measures) -> list[Panel]:
    """Table 2: what convergence contributes to the total."""
    panel = _learnt(measures, [DENSE, "dgc(0.01)", "dragonn(0.01)"])
    target = panel.curve("DGC").last
    reached = [
        crossing([int(x) for x in curve.x], [y or 0.0 for y in curve.y], target)
        for curve in panel.curves
    ]
    return [Panel(STEPS, "", "", [Curve("", [c.series for c in panel.curves], reached)])]


def judge_target(panels: dict[str, Panel]) -> list[Finding]:
    curve = panels[STEPS].curve("")
    reached = dict(zip(curve.x, curve.y, strict=True))
    ours, theirs = reached["DRAGONN"], reached["DGC"]
    words = (
        "never there" if ours is None else f"DGC takes {(theirs or 0) / ours:.2f} times the steps"
    )
    return [
        Finding(
            "DGC takes more steps to the same accuracy, 1.6 times as many for XML",
            "1.42 to 3.52 times the time in all",
            words,
            verdict([ours is not None and (theirs or 0) / ours > 1.05]),
        )
    ]


def measure_others(measures: Measures) -> list[Panel]:
    """Figure 7."""
    names = [DENSE, "dgc(0.01)", "dragonn(0.01)", "signsgd", "randomk(0.01)"]
    panel = _learnt(measures, names)
    runs = measures.learn(LESSON, names[1:])
    sent = [sent_per_step(runs[name]) for name in names]
    shown = [LEARNT[name] for name in names]
    return [panel, Panel("bytes sent per rank and step", "", "bytes", [Curve("", shown, sent)])]


def judge_others(panels: dict[str, Panel]) -> list[Finding]:
    last = {curve.series: curve.last for curve in panels[LOSS].curves}
    sent = panels["bytes sent per rank and step"].curve("")
    return [
        Finding(
            "DRAGONN takes fewer steps than SignSGD, although that sends 31 times as many values",
            "fewer steps",
            f"loss {last['DRAGONN']:.3f} against {last['SignSGD']:.3f}, with "
            f"{sent.at('DRAGONN') / sent.at('SignSGD'):.1%} of its bytes",
            verdict([last["DRAGONN"] < last["SignSGD"]]),
        ),
        Finding(
            "random selection takes many times the steps",
            "15.1 times",
            f"loss {last['Random']:.3f} against {last['DRAGONN']:.3f} after {LESSON.steps} steps",
            verdict([last["Random"] > last["DRAGONN"] + 0.1]),
        ),
    ]


STEP, SHARE = "time of a step", "time to decode in a step"
ABLATION = {
    "torch-dense": "FULL",
    "dgc": "DGC",
    "dragonn(0.05, batched=False)": "DRAGONN",
    "dragonn": "+ decoding",
    "dragonn(0.05, selective=True)": "+ selection",
}


def measure_ablation(measures: Measures) -> list[Panel]:
    """Figure 6."""
    rows = measures.train("digits", list(ABLATION)[1:], 4, 30)
    steps = [rows[name][-1]["step_seconds_min"] for name in ABLATION]
    parts = [rows[name][-1]["seconds_by_phase"] for name in ABLATION]
    shown = list(ABLATION.values())
    return [
        Panel(STEP, "", "s", [Curve("", shown, steps)]),
        Panel(SHARE, "", "s", [Curve("", shown, [part.get("decode") for part in parts])]),
    ]


def judge_ablation(panels: dict[str, Panel]) -> list[Finding]:
    step = panels[STEP].curve("")
    gains = [step.at("DGC") / step.at(n) for n in ("DRAGONN", "+ decoding", "+ selection")]
    words = " / ".join(f"{gain:.2f}" for gain in gains)
    return [
        Finding(
            "each part makes synchronisation faster than DGC's",
            "1.21 to 1.33 by hashing, up to 1.92 in all (XML 1.91 and 4.33)",
            f"{words} times DGC's step by hashing / + decoding / + selection",
            YES if fmean(gains) > 1.15 and gains[0] > 1.1 else IN_PART if max(gains) > 1.1 else NO,
        )
    ]


SMALL = (
    f"A small ResNet on 8 × 8 digits, {LESSON.workers} workers, {LESSON.steps} steps, ρ = 0.01, "
    "two seeds, the same learning rate for all; FULL is PyTorch's bf16 hook."
)
