"""What `thinwire bench converge` is asked for, and which case comes next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from thinwire.bench.limits import refuse_device, refuse_links
from thinwire.bench.peers import BASELINE
from thinwire.bench.runner import Device, in_words
from thinwire.bench.steps.plan import RECIPES as TIMED
from thinwire.bench.steps.plan import own_density, refuse_recipes, written
from thinwire.bench.train.hooks import DDP_PEERS
from thinwire.bench.train.rounds import rounds_of
from thinwire.errors import ThinwireError
from thinwire.lab.lab import Check
from thinwire.lab.links import bits_per_second
from thinwire.lab.rank_main import Message
from thinwire.report.converge import REFERENCE
from thinwire.report.steps import COMPUTE
from thinwire.results.curves import best_rate, is_adaptive, is_run, label, step_time
from thinwire.results.file import Row
from thinwire.workloads.lessons import LESSONS, Optimizer

What = Literal["learn", "time", "verify"]
LOCAL = ("diloco@30", "sparseloco@15", "sparseloco@30")
RECIPES = (BASELINE, *(name for name in TIMED if not is_adaptive(name)), *LOCAL)  # as are timed
LOOKS = 20  # at the held-out part, in a run
REPORT_EVERY = 10  # steps, as the ranks do


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Empty `learning_rates`, no `steps` or `examples` mean each model's own."""

    device: Device = "cpu"
    models: tuple[str, ...] = ("transformer-small",)
    optimizers: tuple[Optimizer, ...] = ("adamw",)
    recipes: tuple[str, ...] = RECIPES
    workers: int = 4
    nodes: int | None = None  # one per worker
    rates: tuple[str | None, ...] = ("25gbit", "10gbit", "1gbit", "100mbit")
    density: float = 0.01
    seeds: int = 3
    seed: int = 0  # the first
    learning_rates: tuple[float, ...] = ()
    steps: int | None = None
    examples: int | None = None  # per rank and step
    every: int | None = None  # steps between two looks at the held-out part
    timed_steps: int = 20
    longest_step_s: float = 10.0  # what takes longer is computed from a faster rate
    case_s: float = 30.0  # of timed steps: longer ones are fewer
    deadline_s: float = 300.0  # without a word
    verify: tuple[str, ...] = ()  # RECIPE@RATE
    check: Check = "refuse"
    budget_s: float | None = None
    text: Path | None = None
    images: Path | None = None
    times: tuple[Path, ...] = ()
    series: bool = False  # what pieces tell step by step, with each run

    def names(self) -> list[str]:
        """Of recipes; what the others refer to comes first."""
        return written((REFERENCE, *self.recipes), self.density)

    def rates_of(self, model: str, optimizer: Optimizer) -> tuple[float, ...]:
        return self.learning_rates or LESSONS[model].rates[optimizer]

    def steps_of(self, model: str) -> int:
        return self.steps or LESSONS[model].steps

    def examples_of(self, model: str) -> int:
        return self.examples or LESSONS[model].examples

    def checks(self) -> list[tuple[str, str]]:
        """Recipes to run for real, and where."""
        pairs = (one.rpartition("@") for one in self.verify)
        return [(recipe, rate) for recipe, _, rate in pairs]


@dataclass(frozen=True, slots=True)
class Case:
    """A run that learns, over unshaped links; or steps to be timed; or a run to check both.

    `auto` learns at every rate.
    """

    what: What
    workers: int
    rate: str | None  # None is unshaped
    model: str
    recipe: str
    density: float | None
    optimizer: Optimizer
    learning_rate: float
    seed: int

    def __str__(self) -> str:
        words = {"time": "timed"}.get(
            self.what, f"{self.optimizer} {self.learning_rate:g}, seed {self.seed}"
        )
        return f"{in_words(self, self.model)}: {words}"

    @property
    def key(self) -> tuple[object, ...]:
        """What a row is told by."""
        name = label({"recipe": self.recipe, "density": self.density})
        run = (self.optimizer, self.learning_rate, self.seed) if self.what != "time" else ()
        return (self.model, self.workers, name, self.megabits, *run)

    @property
    def megabits(self) -> float | None:
        """The rate, as rows have it."""
        return None if self.rate is None else bits_per_second(self.rate) / 1e6


def is_timed(row: Row) -> bool:
    """Of whole steps of a real model."""
    return "step_seconds" in row and "device" in row


def key_of(row: Row) -> tuple[object, ...]:
    """As `Case.key`."""
    run = [row[field] for field in ("optimizer", "learning_rate", "seed") if is_run(row)]
    return (row["model"], row["workers"], label(row), row["rate"], *run)


@dataclass
class Book:
    """What is known so far: rows of runs and of timed steps."""

    rows: list[Row]
    others: list[Row] = field(default_factory=list)  # timed steps, from other files

    @property
    def times(self) -> list[Row]:
        return [row for row in (*self.others, *self.rows) if is_timed(row)]

    def has(self, case: Case) -> bool:
        """Measured, or tried in vain."""
        known = self.times if case.what == "time" else [row for row in self.rows if is_run(row)]
        return any(key_of(row) == case.key for row in known)

    def best(self, case: Case) -> float | None:
        """The learning rate to go on with; None where all failed."""
        name = label({"recipe": case.recipe, "density": case.density})
        runs = [
            row
            for row in self.rows
            if is_run(row)
            and (row["model"], row["optimizer"], row["workers"], label(row))
            == (case.model, case.optimizer, case.workers, name)
            and (row["rate"] == case.megabits or not is_adaptive(case.recipe))
            and row["final_loss"] is not None
        ]
        return best_rate(runs) if runs else None


def cases(settings: Settings, book: Book) -> Iterator[Case]:
    """One after the other; which is next depends on what the book says by then."""
    for case in _all(settings, book):
        if not book.has(case):
            yield case


def _all(settings: Settings, book: Book) -> Iterator[Case]:
    for model in settings.models:
        for optimizer in settings.optimizers:
            for name in settings.names():
                if not is_adaptive(name):
                    yield from _runs(settings, book, model, optimizer, name, None)
    for place, rate in enumerate(_fast_first(settings.rates)):
        for model in settings.models:
            for name in ([COMPUTE] if place == 0 else []) + settings.names():
                case = _case(settings, "time", model, settings.optimizers[0], name, rate)
                if not is_adaptive(name) and not _too_slow(settings, book, case):
                    yield case
            for optimizer in settings.optimizers:
                for name in filter(is_adaptive, settings.names()):
                    yield from _runs(settings, book, model, optimizer, name, rate)
    for name, rate in settings.checks():
        for model in settings.models:
            case = _case(settings, "verify", model, settings.optimizers[0], name, rate)
            best = book.best(case)
            if best is not None:
                yield _with(case, best, settings.seed)


def _runs(
    settings: Settings, book: Book, model: str, optimizer: Optimizer, name: str, rate: str | None
) -> Iterator[Case]:
    """Every learning rate with the first seed, and the best of them with the others."""
    case = _case(settings, "learn", model, optimizer, name, rate)
    for learning_rate in settings.rates_of(model, optimizer):
        yield _with(case, learning_rate, settings.seed)
    best = book.best(case)
    for seed in range(settings.seed + 1, settings.seed + settings.seeds):
        if best is not None:
            yield _with(case, best, seed)


def _case(
    settings: Settings, what: What, model: str, optimizer: Optimizer, name: str, rate: str | None
) -> Case:
    density = own_density(name, settings.density)
    first = settings.rates_of(model, optimizer)[0]
    return Case(what, settings.workers, rate, model, name, density, optimizer, first, settings.seed)


def _with(case: Case, learning_rate: float, seed: int) -> Case:
    return replace(case, learning_rate=learning_rate, seed=seed)


def _too_slow(settings: Settings, book: Book, case: Case) -> bool:
    """Whether a faster rate says that a step would take too long to wait for."""
    if case.rate is None:
        return False
    setting = {"model": case.model, "workers": case.workers, "device": settings.device}
    setting |= {"recipe": case.recipe, "density": case.density}
    setting |= {"examples": settings.examples_of(case.model)}
    known = step_time(book.times, setting, case.megabits)
    return known is not None and known.seconds > settings.longest_step_s


def _fast_first(rates: Sequence[str | None]) -> list[str | None]:
    shaped = sorted(filter(None, rates), key=bits_per_second, reverse=True)
    return ([None] if None in rates else []) + shaped


def order(case: Case, settings: Settings, data: dict[str, str]) -> Message:
    """What the ranks are told. Timed steps are those after a density's warm-up."""
    steps = settings.steps_of(case.model)
    arguments: dict[str, object] = {} if case.density is None else {"density": case.density}
    of_ours = case.recipe not in (COMPUTE, *DDP_PEERS) and not rounds_of(case.recipe)
    if case.what == "time" and of_ours:
        arguments["warm_up"] = None
    return {
        "what": case.what,
        "rehearse": case.what == "verify" or is_adaptive(case.recipe),
        "model": case.model,
        "data": data[case.model],
        "examples": settings.examples_of(case.model),
        "recipe": case.recipe,
        "arguments": arguments,
        "device": settings.device,
        "optimizer": case.optimizer,
        "learning_rate": case.learning_rate,
        "steps": settings.timed_steps if case.what == "time" else steps,
        "every": settings.every or max(1, steps // LOOKS),
        "warmup": settings.timed_steps // 4,
        "seed": case.seed,
        "case_s": settings.case_s,
        "deadline_s": settings.deadline_s,
        "trace": False,
    }


def steps_to_do(settings: Settings) -> int:
    """At most, as the ranks report them."""
    runs = sum(
        settings.steps_of(model) * (len(settings.rates_of(model, optimizer)) + settings.seeds - 1)
        for model in settings.models
        for optimizer in settings.optimizers
    )
    timed = len(settings.models) * len(settings.rates) * settings.timed_steps
    return (runs + timed) * len(settings.names()) // REPORT_EVERY


def refuse_other_run(row: Row, settings: Settings, path: Path) -> None:
    """One that would be compared with this command's, and had other steps, rates or examples."""
    model, optimizer = row["model"], row["optimizer"]
    if model not in settings.models or optimizer not in settings.optimizers:
        return
    rates = settings.rates_of(model, optimizer)
    steps, examples = settings.steps_of(model), settings.examples_of(model)
    same = (row["steps"], row["examples"]) == (steps, examples)
    if not same or row["learning_rate"] not in rates:
        here = ", ".join(f"{rate:g}" for rate in rates)
        raise ThinwireError(
            f"{path}: its {model} had {row['steps']} steps of {row['examples']} examples at "
            f"lr={row['learning_rate']:g}, this command has {steps} of {examples} at {here}: give "
            "it the same --steps, --examples and --lrs, or another file"
        )


def refuse_impossible(settings: Settings) -> None:
    """Before anything is started: a run should not end in its tenth minute for this."""
    for model in settings.models:
        if model not in LESSONS:
            raise ThinwireError(f"unknown model {model!r}; to learn: {', '.join(LESSONS)}")
    read = {LESSONS[model].reader.source for model in settings.models}
    for source, path in (("text", settings.text), ("images", settings.images)):
        if path is not None and source not in read:
            raise ThinwireError(
                f"--{source} {path} is read by none of {', '.join(settings.models)}"
            )
    for optimizer in settings.optimizers:
        if optimizer not in get_args(Optimizer):
            known = ", ".join(get_args(Optimizer))
            raise ThinwireError(f"unknown optimizer {optimizer!r}; there are: {known}")
    refuse_recipes(settings.names(), settings.density)
    for recipe, rate in settings.checks():
        if recipe not in settings.names() or not rate:
            raise ThinwireError(
                f"verify={recipe}@{rate} must be one of the recipes and a rate, as topk@1gbit"
            )
        bits_per_second(rate)
    for learning_rate in settings.learning_rates:
        if not learning_rate > 0:
            raise ThinwireError(f"lr={learning_rate:g} must be above 0")
    refuse_device(settings.device)
    rates = (*settings.rates, *(rate for _, rate in settings.checks()))
    refuse_links((settings.workers,), settings.nodes, rates)
