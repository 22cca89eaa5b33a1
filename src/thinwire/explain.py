"""Why each unit goes the way it goes, in words: `handle.explain()`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from thinwire.auto import Auto
from thinwire.chooser import Chooser, Choosers, Decision
from thinwire.codec.linear import CountSketch
from thinwire.collective import SketchAllReduce, UnionAllReduce
from thinwire.pipeline import Pipeline
from thinwire.policy.choose import DENSE
from thinwire.policy.network import Link, Network
from thinwire.policy.predict import unit_cost
from thinwire.policy.units import Unit as PlannedUnit
from thinwire.sparsify import BlockTopK
from thinwire.unit import Unit
from thinwire.words import duration, short

_NO_NETWORK = Network(Link(0.0, 0.0))  # bytes are wanted, not seconds


def explain(pipeline: Pipeline, units: Iterable[Unit], choosers: Choosers) -> str:
    """What was decided for these units and from which numbers; the same on every rank."""
    by_name = {unit.names[0]: unit for unit in units}
    if isinstance(pipeline, Auto):
        if not choosers.by_kind:
            return "auto: no step was taken yet."
        told = [_of_chooser(chooser, by_name) for chooser in choosers.by_kind.values()]
        return "\n\n".join(told)
    text = "The recipe was given, not chosen: nothing was compared. The recipe 'auto' compares."
    if isinstance(pipeline.collective, SketchAllReduce):
        notes = (_sketch_or_union(pipeline, u, choosers.comm.size) for u in by_name.values())
        text = "\n".join([text, *notes])
    return text


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
    expected = made.predicted_step
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


def _sketch_or_union(pipeline: Pipeline, unit: Unit, ranks: int) -> str:
    """S2's sketch beside the exact sum of the same blocks, in bytes a rank and step.

    Both have the same rounds, so that bytes decide which is cheaper.
    """
    blocks, sketch, collective = pipeline.sparsifier, pipeline.codec, pipeline.collective
    assert isinstance(collective, SketchAllReduce) and isinstance(sketch, CountSketch)
    exact = replace(pipeline, codec=None, collective=UnionAllReduce(collective.block))
    sent, whole = (_bytes(way, unit, ranks) for way in (pipeline, exact))
    noise = 1 / sketch.ratio
    told = (
        f"{unit.spec.name}: the sketch sends {short(sent)}B a step with noise of {noise:.2g} times "
        f"the squared norm; union, which has none, sends {short(whole)}B for the same blocks"
    )
    if whole <= sent:
        return f"{told}: union is cheaper."
    if not isinstance(blocks, BlockTopK):
        return f"{told}."
    fewer = replace(exact, sparsifier=replace(blocks, density=blocks.density * sketch.ratio))
    return (
        f"{told}, and {short(_bytes(fewer, unit, ranks))}B at density "
        f"{blocks.density * sketch.ratio:.3g}: cheaper where those blocks do."
    )


def _bytes(way: Pipeline, unit: Unit, ranks: int) -> float:
    return unit_cost(way, PlannedUnit(unit.names, unit.spec.numel, 1.0), ranks, _NO_NETWORK).sent


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
