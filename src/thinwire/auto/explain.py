"""Why each unit goes the way it goes, in words: `handle.explain()`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from thinwire.auto import Auto
from thinwire.auto.by_step import Choosers
from thinwire.auto.rules import DENSE
from thinwire.auto.trials import Chooser, Decision
from thinwire.codec.sketch import CountSketch
from thinwire.collective import SketchAllReduce, UnionAllReduce
from thinwire.cost.exchange import Load
from thinwire.cost.network import Link, Network
from thinwire.cost.patterns import exchange_cost
from thinwire.cost.predict import ALIKE, load_of
from thinwire.format import duration, short
from thinwire.pipeline import Pipeline
from thinwire.units.rows import RowUnit
from thinwire.units.unit import Unit

_NO_NETWORK = Network(Link(0.0, 0.0))  # bytes are wanted, not seconds


def explain(
    pipeline: Pipeline, units: Iterable[Unit], rows: Iterable[RowUnit], choosers: Choosers
) -> str:
    """What was decided for these units, and for COO gradients, and from which numbers."""
    by_name = {unit.names[0]: unit for unit in units}
    if isinstance(pipeline, Auto):
        if not choosers.by_kind:
            return "auto: no step was taken yet."
        told = [_of_chooser(chooser, by_name) for chooser in choosers.by_kind.values()]
        return "\n\n".join(told)
    ranks = choosers.comm.size
    text = "The recipe was given, not chosen: nothing was compared. The recipe 'auto' compares."
    if not isinstance(pipeline.collective, SketchAllReduce):
        return text
    loads = {u.spec.name: load_of(pipeline, u.spec.numel, ranks) for u in by_name.values()}
    notes = [_sketch_or_union(name, load, pipeline, True) for name, load in loads.items()]
    for unit in rows:
        cost = unit.cost()
        load = Load(ranks, cost.numel, cost.row()["k"], ALIKE, unit.width)
        notes.append(_sketch_or_union(unit.name, load, pipeline, False))
    return "\n".join([text, *notes])


def _of_chooser(chooser: Chooser, units: dict[str, Unit]) -> str:
    made = chooser.decision
    if made is None:
        return "auto: nothing is decided yet; all units are sent dense, or are being tried."
    lines = [f"auto, decided after {made.step} steps: {_summary(made)}"]
    if made.network is not None:
        lines.append(f"network: {made.network}")
    rows = [_unit_row(name, units.get(name), made) for name in made.dense.units]
    headings = ("unit", "elements", "way", "dense", "measured", "predicted")
    lines += _table([headings, *rows])
    tried = [f"{label} {duration(m.busy)}" for label, m in made.tried.items()]
    if tried:
        lines.append(f"tried for all units: {', '.join(tried)}")
    untried = {label: p for label, p in made.predicted.items() if label not in made.tried}
    if untried and made.tried:
        named = (f"{label} {duration(sum(p.values()))}" for label, p in untried.items())
        lines.append(f"not tried, predicted: {', '.join(named)}")
    return "\n".join(lines)


def _summary(made: Decision) -> str:
    whole = f"a step takes {duration(made.dense.step)} with dense"
    if not made.choice:
        return f"dense everywhere: {made.reason}; {whole}"
    expected = made.predicted_step(made.choice)
    measured = "" if made.chosen is None else f", {duration(made.chosen.step)} as chosen"
    predicted = "" if expected is None else f" (predicted {duration(expected)})"
    return f"{len(made.choice)} of {len(made.dense.units)} units not dense; {whole}" + (
        measured + predicted
    )


def _unit_row(name: str, unit: Unit | None, made: Decision) -> Sequence[str]:
    way = made.choice.get(name, DENSE)
    measured = made.chosen.units.get(name) if made.chosen is not None else None
    predicted = made.predicted.get(way, {}).get(name)
    return (
        name if unit is None else unit.spec.name,
        "" if unit is None else f"{unit.spec.numel:,}",
        way,
        duration(made.dense.units[name]),
        "" if measured is None else duration(measured),
        "" if predicted is None else duration(predicted),
    )


def _sketch_or_union(name: str, load: Load, pipeline: Pipeline, selects: bool) -> str:
    """S2's sketch beside the exact sum of the same blocks, in bytes a rank and step.

    Both have the same rounds, so that bytes decide which is cheaper.
    """
    sketch, collective = pipeline.codec, pipeline.collective
    assert isinstance(collective, SketchAllReduce) and isinstance(sketch, CountSketch)
    exact = UnionAllReduce(collective.block)
    _, sent, _ = exchange_cost(collective, sketch, load, _NO_NETWORK)
    _, whole, _ = exchange_cost(exact, None, load, _NO_NETWORK)
    told = (
        f"{name}: the sketch sends about {short(sent)}B a step, with noise of "
        f"{1 / sketch.ratio:.2g} times the squared norm; union, which has none, sends "
        f"{short(whole)}B for the same blocks"
    )
    if whole <= sent:
        return f"{told}: union is cheaper."
    if not selects:
        return f"{told}: the sketch is cheaper, union is exact."
    fewer = replace(load, k=load.k * sketch.ratio)
    _, same, _ = exchange_cost(exact, None, fewer, _NO_NETWORK)
    share = f"{sketch.ratio:.2g} of the density"
    return f"{told}, or {short(same)}B at {share}: take it if those blocks do."


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
