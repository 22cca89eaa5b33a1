"""docs/extend.md: its pieces run, and pass the contract suites as thinwire's own do.

They are brought as a package would bring them, by entry points, so that every process has them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/extend.md").read_text(), re.DOTALL)
NAMES = {"Above": "above", "Int8Value": "int8", "Leader": "leader"}
SUITES = (
    "tests/contracts/test_quick.py",
    "tests/sparsify/test_contract.py",
    "tests/contracts/test_law_4_roundtrip.py",
    "tests/contracts/test_law_5_refusal.py",
)


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """A folder with the page's pieces as an installed package."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "extend_pieces.py").write_text("\n\n".join(BLOCKS))
    info = folder / "extend_pieces-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extend-pieces\nVersion: 1.0\n")
    lines = [f"{name} = extend_pieces:{cls}" for cls, name in NAMES.items()]
    (info / "entry_points.txt").write_text("\n".join(["[thinwire.pieces]", *lines, ""]))
    return folder


def run(package: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    paths = [str(package), str(ROOT / "src"), str(ROOT / "tests")]
    return subprocess.run(
        [sys.executable, *argv],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_page_shows_three_short_pieces() -> None:
    classes = [block for block in BLOCKS if "class " in block]
    assert len(classes) == 3
    for block in classes:
        code = block[block.index("@tw.register") :].strip().splitlines()
        assert len([line for line in code if line]) <= 20


def test_the_pages_code_runs(package) -> None:
    done = run(package, "-c", "import extend_pieces as e; print(e.recipe, e.leader)")
    assert done.returncode == 0, done.stderr
    assert "Above(times=2.0)" in done.stdout
    assert "Int8Value()" in done.stdout
    assert "Leader()" in done.stdout


def test_a_package_brings_pieces_by_entry_points(package) -> None:
    code = "import thinwire as tw; print(tw.recipe('above | raw+int8 | allgather | residual'))"
    done = run(package, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "Above(times=3.0)" in done.stdout


def test_its_pieces_pass_the_contract_suites(package) -> None:
    chosen = " or ".join(NAMES.values())
    options = ("-p", "no:xdist", "-p", "no:cacheprovider")
    done = run(package, "-m", "pytest", *options, *SUITES, "-k", chosen)
    assert done.returncode == 0, done.stdout
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed > 15, done.stdout
