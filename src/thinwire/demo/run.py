"""The demo's training runs, and the rows that come of them: those of `bench converge`.

After the runs come rows of one step each, as it went by on rank 0: of the baseline and of what was
first to its loss.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path

from thinwire.bench.converge.plan import Case, order
from thinwire.bench.converge.run import Prepared, learned
from thinwire.bench.runner import Answers, Place, measure_cases
from thinwire.bench.timing import Watcher
from thinwire.demo.outcome import outcome
from thinwire.demo.plan import Settings, plan
from thinwire.errors import ThinwireError
from thinwire.lab.rank_main import Message
from thinwire.results.file import ResultFile, Row

TARGET = "thinwire.demo.case:measure"
ABOUT = ("recipe", "model", "rate", "workers", "device")


def run(settings: Settings, results: ResultFile, watcher: Watcher) -> list[str]:
    """Train everything, run by run into `results`; what failed, in words."""
    cases, learning = plan(settings), settings.learning()
    steps: dict[str, list[Row]] = {}  # one of each recipe, as it went by

    with tempfile.TemporaryDirectory(prefix="thinwire-demo-") as folder:
        lessons = Prepared(learning, Path(folder))

        def order_to(case: Case) -> Message:
            return order(case, learning, lessons.paths) | {"trace": True}

        def add(case: Case, answers: Answers) -> None:
            row = lessons.setting(case, answers.lab) | learned(answers, case, learning)
            about = {field: row[field] for field in ABOUT}
            steps[case.recipe] = [about | span for span in answers.ranks[0]["spans"]]
            results.add([row])

        place = Place(check="warn", device=settings.device)
        failures = measure_cases(TARGET, cases, order_to, add, watcher, place)
    for name in dict.fromkeys(outcome(results.rows).traced):
        results.add(steps[name])
    return failures


def refuse_without_packages() -> None:
    """The page needs more than the library."""
    if find_spec("matplotlib") is None:
        raise ThinwireError("the demo needs matplotlib: pip install 'thinwire[demo]'")
