"""Numbers and settings as text."""

import pytest

from thinwire.format import duration, milliseconds, optional, rate, setting, short


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1500, "1.5k"), (25.6e6, "25.6M"), (-2e9, "-2G"), (3e12, "3T")],
)
def test_short(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (2, "2 s"),
        (0.9996, "1 s"),  # not 1e+03 ms
        (0.0123, "12.3 ms"),
        (250e-6, "250 µs"),
        (3e-9, "3 ns"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rate() -> None:
    assert (rate(100), rate(1000), rate(2500)) == ("100 Mbit/s", "1 Gbit/s", "2.5 Gbit/s")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("rate", None, "loopback"),
        ("rate", 100, "100 Mbit/s"),
        ("workers", 1, "1 worker"),
        ("workers", 8, "8 workers"),
        ("n", 25_600_000, "25.6M elements"),
        ("density", 0.001, "density 0.001"),
        ("alpha", 50e-6, "α 50 µs"),
        ("beta", 9e-9, "β 9 ns/byte"),
        ("compute_seconds", 0.1, "100 ms of compute"),
        ("compute_seconds", 0, ""),
        ("overlap", True, "overlapped"),
        ("overlap", False, "not overlapped"),
        ("overlap", "on", "overlap on"),
        ("model", "gpt2", "gpt2"),
        ("model", None, ""),
    ],
)
def test_setting(field: str, value: object, text: str) -> None:
    assert setting(field, value) == text


def test_words() -> None:
    assert [short(v) for v in (0.5, 1500, 2e6, 3e9)] == ["0.5", "1.5k", "2M", "3G"]
    assert [duration(v) for v in (0, 2.5e-7, 2.5e-4, 0.001, 1.5)] == [
        "0",
        "250 ns",
        "250 µs",
        "1 ms",
        "1.5 s",
    ]
    assert setting("rate", None) == "loopback" and setting("rate", 1000.0) == "1 Gbit/s"
    assert setting("compute_seconds", 0.0) == "" and setting("overlap", False) == "not overlapped"
    assert setting("density", None) == "" and setting("workers", 1) == "1 worker"


def test_what_is_not_known_is_left_empty() -> None:
    assert optional(None, ".2f") == milliseconds(None) == ""
    assert optional(1.234, ".2f") == "1.23" and milliseconds(0.0123) == "12.3"
