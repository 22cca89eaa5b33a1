"""Small things that a text file should not have: `python scripts/hygiene.py FILE...`

Says which file has trailing blanks, carriage returns, conflict markers or more than a megabyte,
and which does not end with exactly one newline. Changes nothing; exits with 1 if it found any.
"""

import re
import sys
from pathlib import Path

LARGEST = 2**20
FAULTS = {
    "trailing blanks": re.compile(rb"[ \t]+$", re.MULTILINE),
    "carriage returns": re.compile(rb"\r"),
    "conflict markers": re.compile(rb"^(<{7} |>{7} |={7}$)", re.MULTILINE),
    "no newline at the end": re.compile(rb"[^\n]\Z"),
    "blank lines at the end": re.compile(rb"\n\n\Z"),
    "more than a megabyte": re.compile(rb"\A(?s:.){%d}" % LARGEST),
}


def faults(content: bytes) -> list[str]:
    """What is wrong with a file of this content."""
    return [name for name, pattern in FAULTS.items() if pattern.search(content)]


def main(paths: list[str]) -> int:
    """Print every fault of every file; the exit status."""
    found = [(path, fault) for path in paths for fault in faults(Path(path).read_bytes())]
    for path, fault in found:
        print(f"{path}: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
