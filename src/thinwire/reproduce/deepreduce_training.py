"""DeepReduce in training: policies, fits, volume against accuracy, and NCF (figures 6 to 9 and 15,
table 2).
"""

from thinwire.reproduce.experiment import APART, Curve, Finding, Panel, apart, verdict
from thinwire.reproduce.measures import (
    DENSE,
    Lesson,
    Measures,
    mean_points,
    sent_per_step,
)
from thinwire.results.file import Row

LESSON = Lesson("resnet-small", workers=2, steps=60)
ACCURACY, LOSS = "held-out accuracy", "held-out loss"
VOLUME = "bytes over dense's"
POLICIES = ("p0", "p1", "p2")


def bloom(policy: str, fpr: float) -> str:
    return f"deepreduce(0.01, \"bloom('{policy}', fpr={fpr:g})\", 'raw')"


FITS = {
    "deepreduce(0.01, 'raw', 'fit_poly')": "Fit-Poly",
    "deepreduce(0.01, 'raw', 'fit_dexp')": "Fit-DExp",
}
BY_POLICY = {bloom(policy, 0.001): f"BF-{policy.upper()}" for policy in POLICIES}
NAIVE = {bloom("naive", 0.001): "BF-naive"}
TOPK = {"topk(0.01)": "Top-r"}
ALONE = {"3lc": "3LC", "sketchml(0.01)": "SketchML"}


def relative(runs: list[Row]) -> float:
    """Bytes over those of a dense allreduce in float32."""
    workers: int = runs[0]["workers"]
    numel: int = runs[0]["parameters"]
    return sent_per_step(runs) / (4 * numel * 2 * (workers - 1) / workers)


def _learnt(measures: Measures, names: dict[str, str]) -> list[Panel]:
    """Accuracy and loss by step, and the volume."""
    runs = measures.learn(LESSON, list(names))
    shown = {DENSE: "baseline"} | names
    volume = [1.0, *(relative(runs[name]) for name in names)]
    return [
        Panel(ACCURACY, "step", "share", _curves(runs, shown, "held_out_hits")),
        Panel(LOSS, "step", "", _curves(runs, shown, "held_out_loss")),
        Panel(VOLUME, "", "share", [Curve("", list(shown.values()), volume)]),
        apart(runs, shown, "held_out_hits"),
    ]


def _curves(runs: dict[str, list[Row]], shown: dict[str, str], what: str) -> list[Curve]:
    return [Curve(label, *mean_points(runs[name], what)) for name, label in shown.items()]


def _chance(panels: dict[str, Panel]) -> str:
    """The runs without naive policies, which are far from anything."""
    curve = panels[APART].curve("")
    far = [y or 0.0 for x, y in zip(curve.x, curve.y, strict=True) if x != "BF-naive"]
    return f"; two seeds are up to {max(far):.1%} apart"


def measure_policies(measures: Measures) -> list[Panel]:
    """Figure 7."""
    return _learnt(measures, TOPK | BY_POLICY | NAIVE)


def judge_policies(panels: dict[str, Panel]) -> list[Finding]:
    last = {curve.series: curve.last for curve in panels[ACCURACY].curves}
    loss = {curve.series: curve.last for curve in panels[LOSS].curves}
    volume = panels[VOLUME].curve("")
    words = ", ".join(f"{last[n]:.1%} {n}" for n in ("baseline", "Top-r", *BY_POLICY.values()))
    words += _chance(panels)
    ours = [last[name] for name in BY_POLICY.values()]
    saved = 1 - volume.at("BF-P2") / volume.at("Top-r")
    return [
        Finding(
            "all policies converge to the baseline's accuracy",
            "90.9 % of ResNet-20",
            words,
            verdict(accuracy > last["baseline"] - 0.02 for accuracy in ours),
        ),
        Finding(
            "BF-P2 sends a third less than Top-r",
            "33 % less",
            f"{saved:.0%} less",
            verdict([saved > 0.2]),
        ),
        Finding(
            "without a policy (naive) the accuracy is much lower",
            "much lower",
            f"{last['BF-naive']:.1%}; loss {loss['BF-naive']:.3f} against {loss['BF-P2']:.3f}",
            verdict([last["BF-naive"] < last["BF-P2"] - 0.02]),
        ),
    ]


def measure_fpr(measures: Measures) -> list[Panel]:
    """Figure 6: two false positive rates for each policy."""
    rates = (0.001, 0.1)
    names = [bloom(policy, rate) for policy in POLICIES for rate in rates]
    runs = measures.learn(LESSON, names)
    accuracy, volume = [], []
    for policy in POLICIES:
        own = [runs[bloom(policy, rate)] for rate in rates]
        hits = [mean_points(run, "held_out_hits")[1][-1] for run in own]
        accuracy.append(Curve(policy, rates, hits))
        volume.append(Curve(policy, rates, [relative(run) for run in own]))
    return [Panel(ACCURACY, "FPR", "share", accuracy), Panel(VOLUME, "FPR", "share", volume)]


def judge_fpr(panels: dict[str, Panel]) -> list[Finding]:
    accuracy = {curve.series: curve for curve in panels[ACCURACY].curves}
    volume = {curve.series: curve for curve in panels[VOLUME].curves}
    words = "; ".join(
        f"{p}: {volume[p].at(0.001):.2%} to {volume[p].at(0.1):.2%}" for p in POLICIES
    )
    hits = "; ".join(
        f"{p}: {accuracy[p].at(0.001):.1%} to {accuracy[p].at(0.1):.1%}" for p in POLICIES
    )
    return [
        Finding(
            "with a higher FPR P0 sends more, P1 and P2 send less",
            "P0 more than Top-r from 0.004 on",
            f"from 0.001 to 0.1, {words}",
            verdict(
                [
                    volume["p0"].at(0.1) > volume["p0"].at(0.001),
                    volume["p1"].at(0.1) < volume["p1"].at(0.001),
                    volume["p2"].at(0.1) < volume["p2"].at(0.001),
                ]
            ),
        ),
        Finding(
            "P0's accuracy does not depend on the FPR, P1's falls, P2's falls less",
            "P0 marginally affected, P1 decreases, P2 improves on it",
            hits,
            verdict(
                [
                    abs(accuracy["p0"].at(0.1) - accuracy["p0"].at(0.001)) < 0.015,
                    accuracy["p1"].at(0.1) < accuracy["p1"].at(0.001),
                    accuracy["p2"].at(0.1) >= accuracy["p1"].at(0.1),
                ]
            ),
        ),
    ]


def measure_fits(measures: Measures) -> list[Panel]:
    """Figure 8."""
    return _learnt(measures, TOPK | FITS)


def judge_fits(panels: dict[str, Panel]) -> list[Finding]:
    last = {curve.series: curve.last for curve in panels[ACCURACY].curves}
    volume = panels[VOLUME].curve("")
    saved = {name: 1 - volume.at(name) / volume.at("Top-r") for name in FITS.values()}
    return [
        Finding(
            "both fits converge to the baseline's accuracy",
            "the same",
            ", ".join(f"{last[n]:.1%} {n}" for n in ("baseline", "Top-r", *FITS.values()))
            + _chance(panels),
            verdict(last[name] > last["Top-r"] - 0.015 for name in FITS.values()),
        ),
        Finding(
            "Fit-DExp sends about 50 % less than Top-r, Fit-Poly about 40 %",
            "50 and 40 %",
            f"{saved['Fit-DExp']:.0%} and {saved['Fit-Poly']:.0%}",
            verdict([saved["Fit-DExp"] > 0.3, saved["Fit-Poly"] > 0.25]),
        ),
    ]


def measure_tradeoff(measures: Measures) -> list[Panel]:
    """Figure 9."""
    ours = {bloom("p2", 0.001): "BF-P2", "deepreduce(0.01, 'raw', 'fit_poly')": "Fit-Poly"}
    return _learnt(measures, ours | ALONE)


def judge_tradeoff(panels: dict[str, Panel]) -> list[Finding]:
    last = {curve.series: curve.last for curve in panels[ACCURACY].curves}
    volume = panels[VOLUME].curve("")
    names = ("BF-P2", "Fit-Poly", "3LC", "SketchML")
    words = ", ".join(f"{n} {volume.at(n):.2%} at {last[n]:.1%}" for n in names)
    beaten = [
        volume.at(alone) < volume.at(ours) and last[alone] >= last[ours]
        for ours in ("BF-P2", "Fit-Poly")
        for alone in ("3LC", "SketchML")
    ]
    return [
        Finding(
            "DeepReduce balances volume and accuracy; each stand-alone method has one of them",
            "each is biased towards one of the two",
            f"volume and accuracy: {words}",
            verdict(not each for each in beaten),
        )
    ]


def measure_volumes(measures: Measures) -> list[Panel]:
    """Figure 15."""
    accuracy, _, *others = _learnt(measures, TOPK | BY_POLICY | NAIVE)
    return [accuracy, *others]


def judge_volumes(panels: dict[str, Panel]) -> list[Finding]:
    last = {curve.series: curve.last for curve in panels[ACCURACY].curves}
    volume = panels[VOLUME].curve("")
    names = ("Top-r", *BY_POLICY.values(), "BF-naive")
    return [
        Finding(
            "the Bloom filters send less than Top-r at its accuracy, the naive one at less",
            "a figure without numbers in the text",
            ", ".join(f"{n} {volume.at(n):.2%} at {last[n]:.1%}" for n in names),
            verdict(
                [
                    all(volume.at(n) < volume.at("Top-r") for n in BY_POLICY.values()),
                    all(last[n] > last["Top-r"] - 0.015 for n in BY_POLICY.values()),
                    last["BF-naive"] < last["Top-r"] - 0.02,
                ]
            ),
        )
    ]


NCF = Lesson("ratings", workers=2, steps=200, rate=0.03, optimizer="adamw")
TABLE_2 = {
    "deepreduce(1.0, \"bloom('p2', fpr=0.01)\", 'fit_poly', True)": "BF-P2 and Fit-Poly",
    "nonzero | huffman+quantile(bits=7) | allgather | residual": "SKCompress",
    "deepreduce(1.0, \"bloom('p0', fpr=0.6)\", 'qsgd(7)', True)": "BF-P0 and QSGD",
    "nonzero | bitmap+qsgd(7) | allgather | residual": "(ours) bitmap and QSGD",
}
PUBLISHED = {"BF-P2 and Fit-Poly": 0.5879, "SKCompress": 0.2175, "BF-P0 and QSGD": 0.2063}
HITS = "hit rate at 10"


def measure_ncf(measures: Measures) -> list[Panel]:
    runs = measures.learn(NCF, list(TABLE_2))
    shown = {DENSE: "baseline"} | TABLE_2
    volume = [1.0, *(relative(runs[name]) for name in TABLE_2)]
    return [
        Panel(HITS, "step", "share", _curves(runs, shown, "held_out_hits")),
        Panel(VOLUME, "", "share", [Curve("", list(shown.values()), volume)]),
        apart(runs, shown, "held_out_hits"),
    ]


def judge_ncf(panels: dict[str, Panel]) -> list[Finding]:
    hits = {curve.series: curve.last for curve in panels[HITS].curves}
    volume = panels[VOLUME].curve("")
    ours = {name: volume.at(name) for name in PUBLISHED}
    return [
        Finding(
            "all reach virtually the same hit rate",
            "0.9497 baseline; 0.9519, 0.9513, 0.9496",
            ", ".join(f"{hits[n]:.3f} {n}" for n in ("baseline", *TABLE_2.values()))
            + _chance(panels),
            verdict(
                [hits["baseline"] > 0.5, *(hits[n] > hits["baseline"] - 0.03 for n in PUBLISHED)]
            ),
        ),
        Finding(
            "BF-P0 with QSGD sends least, then SKCompress, then BF-P2 with Fit-Poly",
            ", ".join(f"{share:.4f} {name}" for name, share in PUBLISHED.items()),
            ", ".join(f"{volume.at(name):.4f} {name}" for name in TABLE_2.values()),
            verdict(
                [
                    ours["BF-P0 and QSGD"] < ours["SKCompress"],
                    ours["SKCompress"] < ours["BF-P2 and Fit-Poly"],
                ]
            ),
        ),
    ]
