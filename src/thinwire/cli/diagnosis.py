"""What `thinwire doctor` has found out: the verdict, the tables, and the line to add."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console

from thinwire.auto.quality import Quality
from thinwire.cli.console import plain_console, show_table
from thinwire.cli.plan import show_steps
from thinwire.cli.plan_options import PLAIN_WIDTH
from thinwire.cost.calibration import Calibration
from thinwire.cost.network import Network
from thinwire.cost.predict import Prediction
from thinwire.pipeline import Pipeline
from thinwire.plan.local import LocalPlan, local_plans, local_verdict
from thinwire.plan.models import Model
from thinwire.plan.observe import Observed
from thinwire.plan.steps import predictions, step_rows
from thinwire.plan.verdict import Verdict, diagnose, link_below, tiers
from thinwire.results.file import ResultFile, Row

TIER_HEADINGS = ("quality", "best recipe", "× dense", "from … to", "final loss")
LOSS: dict[Quality, str] = {
    "exact": "dense's",
    "near": "as near as bf16's",
    "fast": "behind at equal steps",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """What an answer is made from; `where` says which network was measured or given."""

    planned: Model
    workers: int
    recipes: Mapping[str, Pipeline]
    measured: Calibration
    where: str
    seen: Observed | None = None  # of a script or a profile

    def steps_over(self, network: Network) -> dict[str, Prediction]:
        """A step with each recipe, the fastest first."""
        return predictions(self.recipes, self.planned, self.workers, network, self.measured.costs)

    def rounds(self) -> list[LocalPlan]:
        """Of local steps, where the compute is known."""
        if not self.planned.compute:
            return []
        return local_plans(self.planned, self.workers, self.measured.network, self.measured.costs)


def answer(found: Findings, results: ResultFile) -> None:
    """The table, the verdict, and what to do; also into the results."""
    network = found.measured.network
    steps = found.steps_over(network)
    rows = step_rows(steps, found.planned, found.workers, network)
    below = link_below(network, found.steps_over, found.recipes)
    verdict = diagnose(steps, found.recipes, found.planned.compute, below)
    gains = tiers(steps, found.recipes, verdict)
    rounds = found.rounds()
    local = local_verdict(steps, rounds) if rounds else ""
    seen = str(found.seen or "")
    summary: Row = {
        "worth": verdict.answer == "yes",
        "answer": verdict.answer,
        "verdict": verdict.text,
        "best": next(iter(steps)),
        "best_by_quality": verdict.best,
        "pays_below_gbps": below,
        "gain_by_quality": gains,
        "observed": seen,
        "local_steps": local,
        "every": {plan.name: plan.every for plan in rounds},
    }
    results.add([*rows, summary | found.measured.to_dict()])
    console = plain_console(PLAIN_WIDTH)
    title = f"{found.planned.name} on {found.workers} workers: {found.where} ({network})"
    show_steps(console, title, rows)
    _show_tiers(console, gains)
    to_add = _to_add(verdict, found.seen is not None and found.seen.hook == "thinwire")
    for line in filter(None, (seen, verdict.text, local, to_add)):
        console.print(line, markup=False)


def _show_tiers(console: Console, rows: list[Row]) -> None:
    lines = [
        (
            row["quality"],
            row["recipe"],
            f"{row['gain']:.2f}",
            f"{row['gain_low']:.2f} … {row['gain_high']:.2f}",
            LOSS[row["quality_of_recipe"]],
        )
        for row in rows
    ]
    show_table(console, "what each tier of quality would gain", TIER_HEADINGS, lines)


def _to_add(verdict: Verdict, has_one: bool) -> str:
    """The one line, where it is worth one; or what becomes of the one that is there."""
    if verdict.answer == "no":
        return "Leave thinwire.compress away here." if has_one else ""
    tier: Quality = "near" if verdict.answer == "yes" else "fast"
    auto = "auto" if tier == "near" else "auto(quality='fast')"
    where = "Change the one line" if has_one else "Add one line after DistributedDataParallel"
    return (
        f'{where}: thinwire.compress(ddp, "{verdict.best[tier]}"); or "{auto}", which tries on '
        "your own steps."
    )
