"""`thinwire doctor`: yes or no, with the numbers."""

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from support.command_line import call, rows
from thinwire.cost.calibration import Calibration
from thinwire.errors import ThinwireError


# So much compute that what this machine measures of its own speed, however busy, decides nothing.
@pytest.mark.parametrize(
    ("gbps", "compute", "word"), [("0.1", "50ms", "Yes: "), ("100000", "100s", "No: ")]
)
def test_doctor_says_yes_or_no(gbps: str, compute: str, word: str) -> None:
    output = call("doctor", "resnet18", "--workers", "8", "--gbps", gbps, "--recipes", "int8",
                  "--latency", "0", "--compute", compute, "--json", "out.json")  # fmt: skip
    assert word in output
    summary = rows("out.json")[-1]
    pays = "Local steps pay" if word == "Yes: " else "Local steps do not pay"
    assert pays in output and summary["local_steps"].startswith(pays)
    assert summary["worth"] == (word == "Yes: ") and summary["verdict"].startswith(word)
    assert Calibration.from_dict(summary).network.link.beta == pytest.approx(8e-9 / float(gbps))


def test_a_script_that_is_not_there_is_told_before_workers_are_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.execv", lambda *command: pytest.fail(f"started {command}"))
    with pytest.raises(ThinwireError, match=r"there is no script 'nosuch\.py'"):
        call("doctor", "--", "nosuch.py", "--epochs", "1")
