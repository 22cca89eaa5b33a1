"""The table: objects become columns, and only what differs can be chosen."""

import re

from thinwire.report.kinds import OTHER
from thinwire.report.table import table


def test_columns_choices_and_words() -> None:
    rows = [
        {
            "recipe": "a<b>",
            "rate": None,
            "n": 25_600_000,
            "deep": {"x": {"y": 1.23456}},
            "no": None,
        },
        {"recipe": "c", "rate": 100.0, "n": 25_600_000, "peer": True, "file": "f.json"},
    ]
    text = table(OTHER, rows)
    heads = re.findall(r"<th .*?>(.*?)</th>", text)
    assert heads == ["recipe", "rate", "n", "deep x y", "peer", "file"]
    cells = [re.findall(r"<td.*?>(.*?)</td>", line) for line in text.splitlines() if "<td" in line]
    assert cells == [
        ["a&lt;b&gt;", "loopback", "25,600,000", "1.235", "", ""],
        ["c", "100 Mbit/s", "25,600,000", "", "yes", "f.json"],
    ]
    assert re.findall(r'<select data-column="(\d)"', text) == ["0", "1", "5"]


def test_of_a_list_the_table_shows_the_ends() -> None:
    text = table(OTHER, [{"points": {"loss": [5.0, 3.0, 2.0], "one": [1], "none": []}}])
    assert re.findall(r"<td>(.*?)</td>", text) == ["5 … 2", "1", ""]
