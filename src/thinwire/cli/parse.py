"""Settings as they are written on a command line: lists, counts, rates and times."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast, get_args

from thinwire.bench.runner import Device
from thinwire.errors import ThinwireError
from thinwire.lab import LabError
from thinwire.lab.lab import Check
from thinwire.lab.links import seconds

T = TypeVar("T")

MOST_WORKERS = 1 << 20
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9}


def split(text: str) -> tuple[str, ...]:
    """Words between commas; commas within parentheses and braces belong to the word.

    >>> split("dense, topk(0.01, coo=union(64, 'bf16'))")
    ('dense', "topk(0.01, coo=union(64, 'bf16'))")
    """
    words, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth <= 0:
            words.append("")
        else:
            words[-1] += letter
    return tuple(word.strip() for word in words if word.strip())


def listed(option: str, read: Callable[[str], T], text: str) -> tuple[T, ...]:
    """What an option lists, which is at least one thing; errors name the option."""
    words = split(text)
    if not words:
        raise ThinwireError(f"{option} is empty: give at least one")
    try:
        return tuple(read(word) for word in words)
    except ThinwireError as error:
        raise ThinwireError(f"{option}: {error}") from None


def number(text: str) -> float:
    """Any that is finite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ThinwireError(f"{text!r} is not a number")
    return value


def whole(text: str) -> int:
    """A count of at least 1, in digits."""
    if not text.isdecimal() or int(text) < 1:
        raise ThinwireError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def elements(text: str) -> int:
    """How many: 1000000, 1m, 25.6m, 64k, 2^20."""
    base, power, exponent = text.partition("^")
    factor = _FACTORS.get(text[-1:].lower())
    try:
        if power:
            count = float(whole(base) ** whole(exponent))
        else:
            count = number(text[:-1]) * factor if factor else number(text)
    except (ThinwireError, OverflowError):
        count = math.nan
    count = round(count, 3)  # 4.35 · 10^6 is not whole in floating point
    if not (count.is_integer() and count >= 1):
        raise ThinwireError(f"{text!r} is not a number of elements, as 1000, 25.6m or 2^20")
    return int(count)


def link_rate(text: str) -> str | None:
    """As `lab.links` reads rates, later; None where there is no limit."""
    return None if text == "none" else text


def switch(word: str) -> bool:
    """on or off."""
    if word not in ("on", "off"):
        raise ThinwireError(f"{word!r} must be on or off, or on,off for both")
    return word == "on"


def device_choice(text: str) -> Device:
    """Where to compute."""
    for choice in get_args(Device):
        if text == choice:
            return cast(Device, choice)
    raise ThinwireError(f"device={text!r} must be cpu or cuda")


def check_choice(text: str) -> Check:
    """What to do about a link that is off its rate."""
    for choice in get_args(Check):
        if text == choice:
            return cast(Check, choice)
    raise LabError(f"check={text!r} must be refuse, warn or skip")


def time_span(text: str) -> float:
    """Seconds, of at least 0: 0.05, or with a unit, 50us, 100ms, 2s.

    >>> time_span("100ms")
    0.1
    """
    for read in (number, seconds):
        with suppress(ThinwireError):
            if (span := read(text)) >= 0:
                return span
    raise ThinwireError(f"{text!r} is no time: write seconds, or a unit as in 50us or 100ms")


def worker_range(text: str) -> list[int]:
    """Numbers of workers, one by one or by powers of two.

    >>> worker_range("3..20")
    [3, 4, 8, 16, 20]
    """
    low, dots, high = text.partition("..")
    try:
        if not dots:
            numbers = [int(word) for word in text.split(",")]
        else:
            first, last = int(low), int(high)
            powers = (1 << p for p in range(last.bit_length()))
            numbers = [first, *(p for p in powers if first < p < last), *([last] * (last > first))]
    except ValueError:
        raise ThinwireError(f"workers={text!r} must be as 2..4096, or as 4,8,16") from None
    if min(numbers) < 1 or (dots and first > last):
        raise ThinwireError(f"workers={text!r} must go up from at least 1")
    if max(numbers) > MOST_WORKERS:
        raise ThinwireError(f"workers={text!r} must be at most {MOST_WORKERS:,}")
    return numbers
