"""What was chosen for each unit and why, in words: `handle.explain()`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thinwire.auto import Auto
from thinwire.auto.by_step import Choosers
from thinwire.auto.chooser import Chooser, Decision
from thinwire.auto.quality import IN_WORDS, quality_of
from thinwire.auto.rules import DENSE
from thinwire.by_name import ByName
from thinwire.codec.sketch import CountSketch
from thinwire.collective import SketchAllReduce, UnionAllReduce
from thinwire.cost.exchange import Load
from thinwire.cost.patterns import pattern
from thinwire.cost.predict import ALIKE, load_of, shortest_round
from thinwire.format import duration, short
from thinwire.pipeline import Pipeline
from thinwire.units.rows import RowUnit
from thinwire.units.unit import Unit

SHOWN = 5  # of the choices that were not tried
UTILISATION = 0.95  # of the time, for the compute


def explain(
    pipeline: Pipeline,
    units: Iterable[Unit],
    rows: Iterable[RowUnit],
    choosers: Choosers,
    truth: Mapping[str, Any] | None = None,
) -> str:
    """What was decided for these units, and for COO gradients, and from which numbers."""
    said = _explained(pipeline, units, rows, choosers)
    return said if truth is None else f"{said}\n{_true(truth)}"


def _explained(
    pipeline: Pipeline, units: Iterable[Unit], rows: Iterable[RowUnit], choosers: Choosers
) -> str:
    by_name = {unit.names[0]: unit for unit in units}
    if isinstance(pipeline, Auto):
        if not choosers.by_kind:
            return "auto: no step was taken yet."
        return "\n\n".join(_decided(chooser, by_name) for chooser in choosers.by_kind.values())
    if isinstance(pipeline, ByName):
        return _by_name(pipeline, list(by_name.values()), list(rows))
    ranks = choosers.comm.size
    lines = ["The recipe was given, not chosen: nothing was compared. The recipe 'auto' compares."]
    lines.append(_tier(pipeline))
    if isinstance(pipeline.collective, SketchAllReduce) and isinstance(pipeline.codec, CountSketch):
        for unit in by_name.values():
            load = load_of(pipeline, unit.spec.numel, ranks)
            lines.append(_sketch_or_union(unit.spec.name, load, pipeline, True))
        for row_unit in rows:
            cost = row_unit.cost()
            load = Load(ranks, cost.numel, cost.row()["k"], ALIKE, row_unit.width)
            lines.append(_sketch_or_union(row_unit.spec.name, load, pipeline, False))
    return "\n".join(lines)


def _tier(recipe: Pipeline) -> str:
    tier = quality_of(recipe)
    return f"quality: {tier}, {IN_WORDS[tier]}"


def _true(truth: Mapping[str, Any]) -> str:
    """How near updates came to the mean of the gradients."""
    numbers = [truth["cosine"], truth["relative_error"], truth["relative_error_now"]]
    cosine, error, now = ("none" if x is None else f"{x:.3g}" for x in numbers)
    return (
        f"update beside the dense mean, in step {truth['step']}: cosine {cosine}, relative error "
        f"{error}; by what waits about {now} now"
    )


def _by_name(pipeline: ByName, units: Sequence[Unit], rows: Sequence[RowUnit]) -> str:
    """Which tensors each pattern got, and what of them is sent."""
    sizes = {n: size for unit in units for n, size in zip(unit.names, unit.sizes, strict=True)}
    sizes |= {unit.spec.name: unit.spec.numel for unit in rows}
    got = pipeline.names_by_pattern(sizes)
    table = [("pattern", "tensors", "elements", "by", "density")]
    for wildcard, recipe in pipeline.rules:
        names, density = got[wildcard], recipe.sparsifier.density
        elements = f"{sum(sizes[name] for name in names):,}"
        sent = "all" if density is None else f"{density:.3g}"
        table.append((wildcard, str(len(names)), elements, recipe.collective.name, sent))
    return "\n".join(["The recipes were given by name, not chosen.", *_table(table)])


def _decided(chooser: Chooser, units: dict[str, Unit]) -> str:
    decision = chooser.decision
    if decision is None:
        return "auto: nothing is decided yet; all units are sent dense, or are being tried."
    by_unit = bool(decision.unit_costs)
    lines = [f"auto, decided after {decision.step} steps: {_summary(decision)}"]
    if not by_unit:
        lines.append(_tier(chooser.pipelines[decision.label]))
    if decision.network is not None:
        lines.append(f"network: {decision.network}")
    lines += _units(decision, units) if by_unit else _tried(decision)
    return "\n".join(lines + local_steps(decision))


def _summary(decision: Decision) -> str:
    if decision.unit_costs:
        count = f"{len(decision.units)} of {len(decision.unit_costs[DENSE])} units"
        return f"{count} are not sent dense; {decision.reason}, not measured"
    dense = f"a step takes {duration(decision.dense)} with dense"
    if decision.label == DENSE:
        return f"dense: {decision.reason}; {dense}"
    return f"{decision.label}: {dense}, {duration(decision.tried[decision.label])} as chosen"


def _tried(decision: Decision) -> list[str]:
    """Whole steps, the fastest first; then what was not tried, and what it was expected to take."""
    rows = [("tried", "measured", "predicted")]
    for label, seconds in sorted(decision.tried.items(), key=lambda item: item[1]):
        predicted = decision.predicted.get(label)
        rows.append((label, duration(seconds), "" if predicted is None else duration(predicted)))
    lines = _table(rows)
    lines.append(f"trials took {decision.lost:.2g} dense steps longer than dense would have")
    untried = {k: s for k, s in decision.predicted.items() if k not in decision.tried}
    best = sorted(untried, key=lambda label: untried[label])[:SHOWN]
    if best:
        named = ", ".join(f"{label} {duration(untried[label])}" for label in best)
        more = f", and {len(untried) - len(best)} more" if len(untried) > len(best) else ""
        lines.append(f"not tried, predicted: {named}{more}")
    return lines


def local_steps(decision: Decision) -> list[str]:
    """How rarely ranks would have to exchange for the compute to have nearly all of the time.

    A round of H steps by the chosen recipe takes H computes and what one step takes beside its own;
    `thinwire plan` says it of the set-ups for local steps, which send less.
    """
    if not decision.compute:
        return []
    step, compute = decision.tried[decision.label], decision.compute
    share = min(1.0, compute / step)
    said = f"compute is about {share:.0%} of such a step"
    if share >= UTILISATION:
        return [f"{said}: local steps would not pay"]
    every = shortest_round(step - compute, compute, UTILISATION)
    return [
        f"{said}; with local steps, which train otherwise, it would be {UTILISATION:.0%} with an "
        f"exchange every {every:,} steps (tw.outer)"
    ]


def _units(decision: Decision, units: dict[str, Unit]) -> list[str]:
    """Each unit with its own choice."""
    rows = [("unit", "elements", "choice", *decision.unit_costs)]
    for name in decision.unit_costs[DENSE]:
        unit = units.get(name)
        costs = [duration(seconds[name]) for seconds in decision.unit_costs.values()]
        described = ("", "") if unit is None else (unit.spec.name, f"{unit.spec.numel:,}")
        rows.append((*described, decision.units.get(name, DENSE), *costs))
    return _table(rows)


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
