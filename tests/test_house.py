"""The house rules that a program can check.

A module is tested where one looks for it: `a/b/c.py` in `tests/a/b/test_c.py`, or, with the other
small modules of its folder, in `tests/a/b/test_b.py` or `tests/a/test_b.py`. What is tested
elsewhere is named there: the docstring of the test file has a sentence that begins with "Covers"
and lists the modules.
"""

import ast
import re
import tomllib
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import thinwire as tw
from test_examples import SAYS
from thinwire.cookbook import RECIPES
from thinwire.cookbook.registry import ROLES

ROOT = Path(__file__).parents[1]
SRC, TESTS = ROOT / "src" / "thinwire", ROOT / "tests"
MODULES = sorted(SRC.rglob("*.py"))
LONGEST = 320  # lines
COVERS = re.compile(r"Covers ((?:[\w/]+\.py(?:,\s+|\s+and\s+)?)+)\.")


def name_of(module: Path) -> str:
    return module.relative_to(SRC).as_posix()


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def covered_elsewhere() -> dict[str, str]:
    """Modules that a test file's docstring names, and the file."""
    covered = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for named in COVERS.findall(ast.get_docstring(tree(file)) or ""):
            for module in re.findall(r"[\w/]+\.py", named):
                covered[module] = file.relative_to(TESTS).as_posix()
    return covered


def only_names(module: Path) -> bool:
    """Whether there is nothing to test: a docstring, imports, and names for what they brought."""
    plain = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.AnnAssign)
    return all(isinstance(statement, plain) for statement in tree(module).body)


def places(module: Path) -> list[Path]:
    """Where one looks for a module's tests."""
    folder = module.parent.relative_to(SRC)
    package = folder.name or "thinwire"
    stem = package if module.stem == "__init__" else module.stem.lstrip("_")
    around = [
        TESTS / folder / f"test_{folder.name}.py",
        TESTS / folder.parent / f"test_{folder.name}.py",
    ]
    return [TESTS / folder / f"test_{stem}.py", *(around if folder.name else [])]


def test_every_module_has_tests_that_one_finds() -> None:
    covered = covered_elsewhere()
    missing = [
        name_of(module)
        for module in MODULES
        if not (module.name == "__init__.py" and only_names(module))
        and not any(place.exists() for place in places(module))
        and name_of(module) not in covered
    ]
    assert missing == []


def test_what_is_said_to_be_covered_exists() -> None:
    assert {m: f for m, f in covered_elsewhere().items() if not (SRC / m).exists()} == {}


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_the_command_line_has_its_libraries_to_itself(library: str) -> None:
    at_home = ("cli/", "frontends/live_table.py")  # which is imported when one is asked for
    elsewhere = [
        name_of(module)
        for module in MODULES
        if library in imported(module) and not name_of(module).startswith(at_home)
    ]
    assert elsewhere == []


@pytest.mark.parametrize("framework", ["accelerate", "transformers", "lightning", "jax", "ray"])
def test_a_framework_is_imported_by_its_own_front_end_alone(framework: str) -> None:
    importers = {name_of(module) for module in MODULES if framework in imported(module)}
    assert importers == {f"frontends/{framework}.py"}


def imported(module: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    packages = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.partition(".")[0])
    return packages


def test_no_file_is_too_long() -> None:
    lines = {name_of(module): len(module.read_text().splitlines()) for module in MODULES}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}


def layers() -> list[str]:
    """From the topmost down, as import-linter checks them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    return list(contract["layers"])


def test_the_docs_show_the_layers_that_are_linted() -> None:
    """In the block below the heading "Layers" of docs/design.md, one per line."""
    design = (ROOT / "docs" / "design.md").read_text()
    (block,) = re.findall(r"^## Layers\n.*?```text\n(.*?)```", design, re.DOTALL | re.MULTILINE)
    assert block.splitlines() == layers()


def test_every_top_level_module_is_in_a_layer() -> None:
    layered = {name for layer in layers() for name in layer.split(" | ")}
    there_are = {p.stem for p in SRC.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert there_are - {"__init__"} == layered


def test_every_example_is_run() -> None:
    assert set(SAYS) == {file.name for file in (ROOT / "examples").glob("*.py")}


def test_files_that_the_docs_name_exist() -> None:
    """Paths in backticks and relative links: below the root, the package or the page's folder."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    pages = [page for page in pages if page.name != "CHANGELOG.md" and "_build" not in page.parts]
    named = re.compile(r"(?:`|\]\()([\w.-]+(?:/[\w.*-]+)*(?:\.\w+|/))(?:`|\)|#)")
    suffixes = {".py", ".md", ".json", ".png", ".toml", ".yaml", ".cff", ".txt", ""}
    missing = {
        f"{page.relative_to(ROOT)}: {path}"
        for page in pages
        for path in named.findall(page.read_text())
        if "*" not in path and Path(path).suffix in suffixes
        if not any((base / path).exists() for base in (ROOT, SRC, page.parent))
    }
    assert missing == set()


def test_tests_that_the_docs_name_exist() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", pages)
    missing = [at for at in named if f"def {at[1]}(" not in (ROOT / at[0]).read_text()]
    assert named and missing == []


@pytest.mark.parametrize(
    ("page", "law"), [("README.md", r"^(\d)\. \*[A-Z]"), ("docs/design.md", r"^(\d)\. \*\*[A-Z]")]
)
def test_every_law_that_is_tested_is_listed(page: str, law: str) -> None:
    files = (TESTS / "contracts").glob("test_law_*.py")
    tested = {number for file in files for number in re.findall(r"_(\d)(?=_)", file.stem)}
    listed = re.findall(law, (ROOT / page).read_text(), re.MULTILINE)
    assert listed == sorted(tested)


DOOR_COLUMNS = ["compress", "resume", "accumulation", "clipping", "second run", "NaN", "P → P'"]


def test_the_table_of_front_doors_has_a_test_in_every_cell() -> None:
    """The numbers in its cells are those of the list below it, which names tests that exist."""
    page = (ROOT / "docs" / "doors.md").read_text()
    doors, cells = (
        [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines()]
        for head in (r"framework \|", r"\| compress \|")
        for table in re.findall(rf"^\| ?{head}.*\n\|-.*\n(?:\|.*\n)+", page, re.MULTILINE)
    )
    assert cells[0] == DOOR_COLUMNS
    assert [row[0] for row in cells[2:]] == [row[0] for row in doors[2:]]
    listed = re.findall(r"^(\d+)\. `tests/[\w/]+\.py::\w+`$", page, re.MULTILINE)
    used = {number for row in cells[2:] for cell in row[1:] for number in cell.split(", ")}
    assert all(len(row) == 1 + len(DOOR_COLUMNS) for row in cells[2:])
    assert used == set(listed) and len(listed) == len(set(listed))


def test_the_fault_matrix_has_every_collective_and_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    (table,) = re.findall(r"^\| fault \| test \|.*\n\|-.*\n(?:\|.*\n)+", page, re.MULTILINE)
    heads, _, *rows = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines()]
    assert heads[2:] == [piece.name for piece in ROLES["collective"][1]]
    for _, test, *cells in rows:
        file, name = test.strip("`").split("::")
        module = import_module(file.removeprefix("tests/").removesuffix(".py").replace("/", "."))
        there_are = ids_of(getattr(module, name))
        for collective, cell in zip(heads[2:], cells, strict=True):
            if re.fullmatch(r"`tests/[\w/]+\.py::\w+`", cell):
                continue  # a test of its own, which exists: see above
            ids = re.findall(r"`\[(.+?)\]`", cell)
            assert ids or cell == "not told", f"{name}, {collective}: {cell}"
            assert set(ids) <= there_are, f"{name}, {collective}: {cell}"


def test_the_fault_pages_table_is_that_of_the_log() -> None:
    log = (ROOT / "docs" / "results" / "soak.log").read_text()
    table = "".join(re.findall(r"^\|.*\n", log, re.MULTILINE))
    assert table and table in (ROOT / "docs" / "faults.md").read_text()


def test_the_fault_pages_flat_runs_are_those_of_the_log() -> None:
    """Memory and Python's objects at a hundredth, a tenth and the end of each run."""
    log = (ROOT / "docs" / "results" / "soak-flat.log").read_text()
    page = (ROOT / "docs" / "faults.md").read_text()
    runs = re.findall(r"^commit \S+ (.+), 2 ranks, (.+) steps\n\n((?:\|.*\n)+)", log, re.MULTILINE)
    for recipe, steps, table in runs:
        rows = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines()[2:]]
        each = [float(row[1]) for row in rows]
        memory = [f"{mib:.0f}" for mib in (each[0], each[1], each[-1], max(each))]
        threads = " to ".join(dict.fromkeys((rows[0][2], rows[-1][2])))
        cells = [f"`{recipe}`", steps, *memory, threads, rows[1][4], rows[-1][4]]
        assert f"| {' | '.join(cells)} |" in page
    assert len(runs) == len(re.findall(r"^\| `.+?` \| [\d,]+ \| [\d.]+ \|", page, re.MULTILINE))


def ids_of(test: Any) -> set[str]:
    """As pytest names the parameters of a test."""
    values = [mark.args[1] for mark in test.pytestmark if mark.name == "parametrize"]
    texts = [
        ["-".join(map(str, value if isinstance(value, tuple) else (value,))) for value in each]
        for each in values
    ]
    return {"-".join(combination) for combination in product(*texts)}


def test_the_api_page_lists_every_piece_and_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    packages = [import_module(name) for name in re.findall(r"automodule:: ([\w.]+)", page)]
    listed = {name for package in packages for name in getattr(package, "__all__", vars(package))}
    listed |= {name.rpartition(".")[2] for name in re.findall(r"auto\w+:: ([\w.]+)", page)}
    own = {piece.__name__ for _, pieces in ROLES.values() for piece in pieces}
    assert own - listed == set()
    assert set(tw.__all__) - listed == {"resolve", "to_dict"}  # old names
    assert {build.__name__ for build in RECIPES.values()} - listed == set()


def test_the_library_alone_brings_no_plots_and_no_compiler() -> None:
    """Numba and Triton bring their own; the rest is an extra that one asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=!~ \[;]", needed)[0] for needed in project["dependencies"]}
    assert names == {"torch", "numpy", "numba"}


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [project["version"]]
    assert tw.__version__ == project["version"]
    assert project["license"] == "Apache-2.0"
    assert "license: Apache-2.0" in citation
