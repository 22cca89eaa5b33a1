"""The demo's training runs, and the rows that come of them.

Rows are those of `bench train`, with the bytes that the library counts. The last row of a run has
`held_out_loss` and `accuracy` too, and the `settings` of the recipe.
"""

from importlib.util import find_spec

from thinwire.bench.runner import Answers, Place, measure_cases
from thinwire.bench.timing import Watcher
from thinwire.bench.train.curve import Run
from thinwire.bench.train.plan import Case, order
from thinwire.bench.train.run import TARGET
from thinwire.demo.plan import Settings, plan
from thinwire.errors import ThinwireError
from thinwire.results.file import ResultFile


def run(settings: Settings, results: ResultFile, watcher: Watcher) -> list[str]:
    """Train everything, run by run into `results`; what failed, in words."""

    def add(case: Case, answers: Answers) -> None:
        measured = Run.of(answers, counted=True)
        rows = measured.curve(case, answers.lab)
        rows[-1] |= measured.summary(case, warmup=0) | answers.ranks[0]["held_out"]
        rows[-1]["settings"] = case.arguments
        results.add(rows)

    place = Place(device=settings.device)
    return measure_cases(TARGET, plan(settings), order, add, watcher, place)


def refuse_without_packages() -> None:
    """The tasks and the page need more than the library."""
    for module, package in (("sklearn", "scikit-learn"), ("matplotlib", "matplotlib")):
        if find_spec(module) is None:
            raise ThinwireError(f"the demo needs {package}: pip install 'thinwire[demo]'")
