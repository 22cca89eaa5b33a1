"""What a result file says about the machine."""

import json
import sys

import pytest

from thinwire import machine


def test_it_can_be_written_down_and_names_what_timings_depend_on() -> None:
    described = machine.describe_machine()
    assert json.loads(json.dumps(described)) == described
    assert {"cpu", "cores", "memory_gib", "python", "torch", "numba", "load_before"} <= set(
        described
    )
    assert described["cores"] == machine.usable_cores() >= 1
    assert described["python"] == ".".join(map(str, sys.version_info[:3]))


def test_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_lines", lambda path: [])
    assert machine.available_memory_gib() is None
    assert machine.describe_machine()["memory_gib"] is None
    assert machine.describe_machine()["cpu"]


def test_memory_is_read_in_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["MemTotal:       33554432 kB", "MemAvailable:   16777216 kB"]
    monkeypatch.setattr(machine, "_lines", lambda path: lines)
    assert machine.available_memory_gib() == 16
    assert machine.describe_machine()["memory_gib"] == 32


def test_a_file_that_is_not_there_has_no_lines() -> None:
    assert machine._lines("/no/such/file") == []


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert machine._version("no-such-package-anywhere") is None
