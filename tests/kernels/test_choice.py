"""Which implementation runs, and how to say otherwise.

Covers kernels/__init__.py.
"""

import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from inspect import getsource, signature
from pkgutil import iter_modules

import pytest
import torch

from thinwire import kernels
from thinwire.errors import RecipeError
from thinwire.kernels.checksum import numba, reference

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ALL, NO_TRITON, NO_NUMBA = "checksum", "varint", "regional"  # packages that have these files
PACKAGES = [each.name for each in iter_modules(kernels.__path__) if each.ispkg]


def test_the_device_decides() -> None:
    assert kernels.chosen(ALL, CPU) == "numba"
    assert kernels.chosen(ALL, CUDA) == "triton"
    assert kernels.chosen(NO_TRITON, CUDA) == "reference"
    assert kernels.chosen(NO_NUMBA, CPU) == "reference"


def test_use_holds_for_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with kernels.use("reference"):
        assert kernels.chosen(ALL, CPU) == kernels.chosen(ALL, CUDA) == "reference"
        with kernels.use(None):
            assert kernels.chosen(ALL, CPU) == "numba"
        assert kernels.chosen(ALL, CPU) == "reference"
    with kernels.use("triton"):  # on the CPU too, for Triton's interpreter
        assert kernels.chosen(ALL, CPU) == "triton"
        assert kernels.chosen(NO_TRITON, CPU) == "numba"
    with kernels.use("numba"):  # which cannot read a GPU's memory
        assert kernels.chosen(ALL, CUDA) == "triton"
    assert kernels.chosen(ALL, CPU) == "numba"


def test_use_as_a_setting() -> None:
    kernels.use("reference")
    try:
        assert kernels.chosen(ALL, CPU) == "reference"
    finally:
        kernels.use(None)
    assert kernels.chosen(ALL, CPU) == "numba"


def test_unknown_names() -> None:
    with pytest.raises(RecipeError, match="cython"):
        kernels.use("cython")  # type: ignore[arg-type]


def test_the_chosen_function_runs() -> None:
    assert kernels.implementation(reference.checksum, CPU) is numba.checksum
    with kernels.use("reference"):
        assert kernels.implementation(reference.checksum, CPU) is reference.checksum
    assert kernels.implementation(reference.checksum, CPU) is numba.checksum


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("name", ("numba", "triton"))
def test_implementations_have_the_functions_of_the_reference(package: str, name: str) -> None:
    """With the same arguments: whichever runs is called in the same way."""
    folder = f"thinwire.kernels.{package}"
    if find_spec(name) is None or find_spec(f"{folder}.{name}") is None:
        pytest.skip(f"there is no {name} for {package}")
    public, contract, module = (
        import_module(path) for path in (folder, f"{folder}.reference", f"{folder}.{name}")
    )
    asked = re.findall(r"implementation\(reference\.(\w+)", getsource(public))
    assert asked, "the package asks for no function of its reference"
    for function in asked:
        ours, theirs = (signature(getattr(each, function)) for each in (module, contract))
        assert list(ours.parameters) == list(theirs.parameters)


def test_numba_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys, thinwire.codec, thinwire.kernels.checksum, thinwire.kernels.pack_bits;"
        "sys.exit('thinwire.kernels.checksum.numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
