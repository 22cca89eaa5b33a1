"""Which implementation runs, and how to say otherwise."""

import subprocess
import sys

import pytest
import torch

from thinwire import kernels
from thinwire.errors import RecipeError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BOTH: tuple[kernels.Implementation, ...] = ("reference", "numba", "triton")


def test_the_device_decides() -> None:
    assert kernels.chosen(CPU, BOTH) == "numba"
    assert kernels.chosen(CUDA, BOTH) == "triton"
    assert kernels.chosen(CUDA, ("reference", "numba")) == "reference"
    assert kernels.chosen(CPU, ("reference", "triton")) == "reference"


def test_use_holds_for_a_block() -> None:
    with kernels.use("reference"):
        assert kernels.chosen(CPU, BOTH) == kernels.chosen(CUDA, BOTH) == "reference"
        with kernels.use(None):
            assert kernels.chosen(CPU, BOTH) == "numba"
        assert kernels.chosen(CPU, BOTH) == "reference"
    with kernels.use("triton"):  # on the CPU too, for Triton's interpreter
        assert kernels.chosen(CPU, BOTH) == "triton"
        assert kernels.chosen(CPU, ("reference", "numba")) == "numba"
    with kernels.use("numba"):  # which cannot read a GPU's memory
        assert kernels.chosen(CUDA, BOTH) == "triton"
    assert kernels.chosen(CPU, BOTH) == "numba"


def test_use_as_a_setting() -> None:
    kernels.use("reference")
    try:
        assert kernels.chosen(CPU, BOTH) == "reference"
    finally:
        kernels.use(None)
    assert kernels.chosen(CPU, BOTH) == "numba"


def test_unknown_names() -> None:
    with pytest.raises(RecipeError, match="cython"):
        kernels.use("cython")  # type: ignore[arg-type]


def test_numba_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys, thinwire.codec, thinwire.kernels.checksum, thinwire.kernels.pack_bits;"
        "sys.exit('thinwire.kernels.checksum.numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
