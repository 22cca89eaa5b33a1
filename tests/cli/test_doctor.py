"""`thinwire doctor`: yes or no, with the numbers. Covers cli/diagnosis.py."""

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


def test_what_follows_a_script_is_the_scripts_also_without_dashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Options that both have are the script's; those before it are the doctor's."""
    looked_at: list[tuple[object, ...]] = []
    monkeypatch.setattr("thinwire.cli.doctor._look_at_script", lambda *them: looked_at.append(them))
    for dashes in ((), ("--",)):
        call("doctor", "--workers", "3", *dashes, "train.py", "--lr", "3", "--workers", "9")
    for asked, script, arguments, _ in looked_at:
        assert (asked.workers, str(script)) == (3, "train.py")
        assert arguments == ["--lr", "3", "--workers", "9"]
    assert len(looked_at) == 2


def test_the_doctor_counts_the_devices_work_for_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `plan` does, from the same measurements."""
    given = ("resnet18", "--workers", "8", "--gbps", "0.1", "--recipes", "int8")
    call("plan", *given, "--json", "plan.json", "--device", "cpu")
    call("doctor", *given, "--json", "doctor.json", "--device", "cpu")
    planned = {row["setup"]: row["every"] for row in rows("plan.json") if "setup" in row}
    assert rows("doctor.json")[-1]["every"] == planned
