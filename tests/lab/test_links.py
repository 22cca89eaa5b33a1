"""What a link does to traffic, and the qdiscs for it."""

from typing import Any

import pytest

from thinwire.lab import LabError
from thinwire.lab.links import LinkShape, bits_per_second, seconds


@pytest.mark.parametrize(
    ("text", "bits"),
    [("1gbit", 10**9), ("100Mbit", 10**8), ("2.5gbit/s", 25 * 10**8), ("64kbit", 64_000)],
)
def test_rates_are_read_as_tc_writes_them(text: str, bits: int) -> None:
    assert bits_per_second(text) == bits


@pytest.mark.parametrize("text", ["", "1", "fast", "1.2.3gbit", "-1gbit", "1gbyte", ".gbit"])
def test_other_rates_are_refused_by_name(text: str) -> None:
    with pytest.raises(LabError, match="rate"):
        bits_per_second(text)


def test_delays_are_read() -> None:
    assert seconds("5ms") == 0.005 and seconds("200us") == pytest.approx(2e-4)
    with pytest.raises(LabError, match="delay"):
        seconds("5")


@pytest.mark.parametrize(
    "settings", [{"rate": 0}, {"rate": 10, "burst": 10}, {"loss_percent": 100}, {"delay_s": -1}]
)
def test_impossible_shapes_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(LabError):
        LinkShape(**settings)


def test_the_burst_is_2_ms_of_the_rate_so_that_little_travels_at_once() -> None:
    assert LinkShape(10**9).burst_bytes == 250_000
    assert LinkShape(10**8).burst_bytes == 25_000
    assert LinkShape(10**6).burst_bytes == 16 * 1024


def test_at_high_rates_the_burst_is_2_mb_and_never_less_than_half_a_millisecond() -> None:
    assert LinkShape(10**10).burst_bytes == LinkShape(25 * 10**9).burst_bytes == 2_000_000
    assert LinkShape(10**11).burst_bytes == 6_250_000


def test_a_plain_shape_is_a_token_bucket_at_both_ends() -> None:
    (bucket,) = LinkShape(10**9).at_the_node()
    assert bucket["kind"] == "tbf" and bucket["rate"] == 10**9 and not bucket["below_netem"]
    assert LinkShape(10**9).at_the_port() == [bucket]
    assert LinkShape().at_the_node() == LinkShape().at_the_port() == []


def test_delay_and_loss_come_once_a_direction_and_before_the_rate() -> None:
    netem, bucket = LinkShape(10**9, delay_s=0.005, loss_percent=1.0).at_the_node()
    assert netem == {"kind": "netem", "delay_us": 5000, "loss_percent": 1.0}
    assert bucket["kind"] == "tbf" and bucket["below_netem"]
    (port,) = LinkShape(10**9, delay_s=0.005).at_the_port()
    assert port["kind"] == "tbf" and not port["below_netem"]
