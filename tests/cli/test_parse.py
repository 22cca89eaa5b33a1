"""Settings as they are written; what cannot be taken is one line; every option has its help.

Covers cli/bench.py.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from typer.core import TyperGroup
from typer.main import get_command

from thinwire.cli.app import app, main
from thinwire.cli.parse import elements, listed, number, split, time_span, whole, worker_range
from thinwire.errors import ThinwireError
from thinwire.results.file import ResultFile

COMMANDS = (
    *("demo", "recipes", "doctor", "plan", "check-plan", "simulate", "lab", "report", "inspect"),
    "reproduce",
    *("bench sync", "bench train", "bench converge", "bench kernels", "bench codecs"),
)


def fails(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code, in this process."""
    monkeypatch.setattr(sys, "argv", ["thinwire", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("path", "reason"),
    [("file/x.json", "file: it is no folder"), ("folder", "folder: Is a directory")],
)
@pytest.mark.parametrize(
    "command",
    ["recipes --json", "report results.json --out", "report results.json --json",
     "simulate --recipes topk --workers 2 --json", "demo --recipes dense --json"],
)  # fmt: skip
def test_a_place_that_cannot_be_written_is_one_line_that_names_it(
    command: str, path: str, reason: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    ResultFile(tmp_path / "results.json")
    assert fails([*command.split(), path], monkeypatch) == 2
    assert capsys.readouterr().err == f"thinwire: {reason}\n"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("bench sync --workers 0 --rates none", "--workers: '0' is not a whole number"),
        ("bench sync --n inf --rates none", "--n: 'inf' is not a number of elements"),
        ("bench sync --rates ,", "--rates is empty"),
        ("bench sync --density , --rates none", "--density is empty"),
        ("bench train --models , --rates none", "--models is empty"),
        ("bench train --overlap both --rates none", "on,off for both"),
        ("bench train --device cpu --overlap off", "--overlap does nothing with --device"),
        ("bench train --device cpu --compute 1ms", "--compute does nothing with --device"),
        ("bench train --device cpu --target-loss 2", "--target-loss does nothing with --device"),
        ("bench train --device cpu --lr 1", "--lr does nothing with --device"),
        ("bench train --device cpu --models digits", "digits goes without --device"),
        ("bench train --trace x.json", "--trace does nothing without --device"),
        ("bench train --case-s 1", "--case-s does nothing without --device"),
        ("bench train --deadline-s 9", "--deadline-s does nothing without --device"),
        ("bench train --models bert", "bert is trained with --device"),
        ("bench train --models vgg16 --lr 1", "--lr 1 does nothing: vgg16 learns nothing"),
        ("bench train --models vgg16,gpt2 --target-loss 2", "--target-loss 2 does nothing"),
        ("bench converge --models resnet-small --text x", "--text x is read by none of resnet"),
        ("bench converge --models embedding-small --images x", "--images x is read by none of"),
        ("bench codecs --n 0", "--n: '0' is not a number of elements"),
        ("bench codecs --steps 0", "--steps: '0' is not a whole number"),
        ("bench kernels --device tpu", "device='tpu'"),
        ("bench kernels --threads 99999 --ops checksum", "threads=99999"),
        ("bench sync --check maybe --rates none", "check='maybe' must be"),
        ("simulate --workers 1..100000000", "at most 1,048,576"),
        ("recipes --json /", "/: Is a directory"),
        ("plan resnet18 --device tpu", "device='tpu' must be one of auto, cpu, cuda, none"),
        ("doctor resnet18 --device none", "device='none' must be one of auto, cpu, cuda"),
        ("plan resnet51", "unknown model 'resnet51'"),
        ("report nosuch.json", "nosuch.json: No such file"),
    ],
)
def test_wrong_input_is_one_line_that_names_it(
    command: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails(command.split(), monkeypatch) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("thinwire: ") and reason in line


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999999"])
@pytest.mark.parametrize("command", ["bench sync", "bench train", "bench codecs", "demo"])
def test_a_seed_out_of_range_is_refused(
    command: str, seed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails([*command.split(), "--seed", seed], monkeypatch) == 2
    assert "--seed" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_is(command: str) -> None:
    found = get_command(app)
    for word in command.split():
        assert isinstance(found, TyperGroup)
        found = found.commands[word]
    assert found.help
    for parameter in found.params:
        said = getattr(parameter, "help", None)
        assert said and said.endswith("."), (command, parameter.name)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2..4096", [1 << p for p in range(1, 13)]), ("3,5", [3, 5]), ("8", [8]), ("4..4", [4])],
)
def test_ranges_of_workers(text: str, numbers: list[int]) -> None:
    assert worker_range(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "8..2", "0..4", "2..", "-1", "1..100000000"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(ThinwireError, match="workers="):
        worker_range(text)


def test_lists_on_the_command_line() -> None:
    assert split("dense, topk(0.01, unit=model),,bf16") == (
        "dense",
        "topk(0.01, unit=model)",
        "bf16",
    )
    assert split('{"*norm*": "dense", "*": "topk"}, bf16') == (
        '{"*norm*": "dense", "*": "topk"}',
        "bf16",
    )
    assert listed("--workers", whole, "4, 8") == (4, 8)


def test_numbers_on_the_command_line() -> None:
    assert [elements(text) for text in ("1000", "64k", "25.6m")] == [1000, 64_000, 25_600_000]
    assert [elements(text) for text in ("4.35M", "2^20", "1e3")] == [4_350_000, 1 << 20, 1000]
    spans = [time_span(text) for text in ("0.5", "100ms", "50us", "0")]
    assert spans == pytest.approx([0.5, 0.1, 50e-6, 0])


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (number, ("", "lots", "nan", "inf")),
        (whole, ("", "x", "0", "-1", "1.5", "1k")),
        (elements, ("", "lots", "m", "0", "-5", "1.5", "inf", "2^x", "2^-1", "2^9999")),
        (time_span, ("", "soon", "-1", "5 min", "nan")),
    ],
)
def test_what_is_none_of_these_is_refused_by_its_text(
    read: Callable[[str], float], texts: tuple[str, ...]
) -> None:
    for text in texts:
        with pytest.raises(ThinwireError, match=re.escape(repr(text))):
            read(text)


@pytest.mark.parametrize("text", ["", " , ", "4,x"])
def test_a_list_that_is_none_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(ThinwireError, match="--workers"):
        listed("--workers", whole, text)
