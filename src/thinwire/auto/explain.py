"""What was chosen for each unit and why, in words: `handle.explain()`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from thinwire.auto import Auto
from thinwire.auto.by_step import Choosers
from thinwire.auto.rules import DENSE
from thinwire.auto.trials import Chooser, Decision
from thinwire.codec.sketch import CountSketch
from thinwire.collective import SketchAllReduce, UnionAllReduce
from thinwire.cost.exchange import Load
from thinwire.cost.patterns import pattern
from thinwire.cost.predict import ALIKE, load_of
from thinwire.format import duration, short
from thinwire.pipeline import Pipeline
from thinwire.units.rows import RowUnit
from thinwire.units.unit import Unit


def explain(
    pipeline: Pipeline, units: Iterable[Unit], rows: Iterable[RowUnit], choosers: Choosers
) -> str:
    """What was decided for these units, and for COO gradients, and from which numbers."""
    by_name = {unit.names[0]: unit for unit in units}
    if isinstance(pipeline, Auto):
        if not choosers.by_kind:
            return "auto: no step was taken yet."
        return "\n\n".join(_decided(chooser, by_name) for chooser in choosers.by_kind.values())
    ranks = choosers.comm.size
    lines = ["The recipe was given, not chosen: nothing was compared. The recipe 'auto' compares."]
    if isinstance(pipeline.collective, SketchAllReduce) and isinstance(pipeline.codec, CountSketch):
        for unit in by_name.values():
            load = load_of(pipeline, unit.spec.numel, ranks)
            lines.append(_sketch_or_union(unit.spec.name, load, pipeline, True))
        for row_unit in rows:
            cost = row_unit.cost()
            load = Load(ranks, cost.numel, cost.row()["k"], ALIKE, row_unit.width)
            lines.append(_sketch_or_union(row_unit.spec.name, load, pipeline, False))
    return "\n".join(lines)


def _decided(chooser: Chooser, units: dict[str, Unit]) -> str:
    decision = chooser.decision
    if decision is None:
        return "auto: nothing is decided yet; all units are sent dense, or are being tried."
    lines = [f"auto, decided after {decision.step} steps: {_summary(decision)}"]
    if decision.network is not None:
        lines.append(f"network: {decision.network}")
    headings = ("unit", "elements", "choice", "dense", "measured", "predicted")
    rows = [_unit_row(name, units.get(name), decision) for name in decision.dense.units]
    lines += _table([headings, *rows])
    tried = [f"{label} {duration(m.busy)}" for label, m in decision.tried.items()]
    if tried:
        lines.append(f"tried for all units: {', '.join(tried)}")
    untried = {label: p for label, p in decision.predicted.items() if label not in decision.tried}
    if untried and tried:
        named = (f"{label} {duration(sum(p.values()))}" for label, p in untried.items())
        lines.append(f"not tried, predicted: {', '.join(named)}")
    return "\n".join(lines)


def _summary(decision: Decision) -> str:
    dense = f"a step takes {duration(decision.dense.step)} with dense"
    if not decision.choice:
        return f"dense everywhere: {decision.reason}; {dense}"
    expected = decision.predicted_step(decision.choice)
    measured = "" if decision.chosen is None else f", {duration(decision.chosen.step)} as chosen"
    predicted = "" if expected is None else f" (predicted {duration(expected)})"
    count = f"{len(decision.choice)} of {len(decision.dense.units)} units are not sent dense"
    return f"{count}; {dense}{measured}{predicted}"


def _unit_row(name: str, unit: Unit | None, decision: Decision) -> Sequence[str]:
    choice = decision.choice.get(name, DENSE)
    measured = decision.chosen.units.get(name) if decision.chosen is not None else None
    predicted = decision.predicted.get(choice, {}).get(name)
    return (
        name if unit is None else unit.spec.name,
        "" if unit is None else f"{unit.spec.numel:,}",
        choice,
        duration(decision.dense.units[name]),
        "" if measured is None else duration(measured),
        "" if predicted is None else duration(predicted),
    )


def _sketch_or_union(name: str, load: Load, pipeline: Pipeline, selects: bool) -> str:
    """S2's sketch beside the exact sum of the same blocks, in bytes per rank and step.

    Both have the same rounds, so that bytes decide which is cheaper.
    """
    sketch, collective = pipeline.codec, pipeline.collective
    assert isinstance(collective, SketchAllReduce) and isinstance(sketch, CountSketch)
    union = UnionAllReduce(collective.block)
    sketch_bytes = pattern(collective, sketch, load).sent
    union_bytes = pattern(union, None, load).sent
    both = (
        f"{name}: the sketch sends about {short(sketch_bytes)}B per step, with noise of "
        f"{1 / sketch.ratio:.2g} times the squared norm; union, which has none, sends "
        f"{short(union_bytes)}B for the same blocks"
    )
    if union_bytes <= sketch_bytes:
        return f"{both}: union is cheaper."
    if not selects:
        return f"{both}: the sketch is cheaper, union is exact."
    fewer_bytes = pattern(union, None, replace(load, k=load.k * sketch.ratio)).sent
    share = f"{sketch.ratio:.2g} of the density"
    return f"{both}, or {short(fewer_bytes)}B at {share}: take it if those blocks do."


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
