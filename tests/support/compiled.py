"""Triton's kernels compiled for a GPU on a machine that has none, down to its machine code.

The interpreter forgives what the compiler does not: types that differ between two branches, a
number that has to be a constant, an operation that a type has not. So launches are noted as the
interpreter makes them, with all that a launch on a GPU compiles a kernel for; processes without
the interpreter compile what was noted. Triton's own cache keeps it for the next time.
"""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch

PROCESSES = 2
TARGET = ("cuda", 90, 32)  # the H200's: what it is called, its generation, the threads of a warp
ALIGNED = 16  # kernels are compiled for addresses that are multiples of it
CHECK = {
    "TRITON_INTERPRET": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
}

Launch = tuple[str, str, str, str]
"""A kernel's module and name; the arguments and settings of a launch, as JSON."""


@contextmanager
def noted(launches: set[Launch]) -> Iterator[None]:
    """Adds what the interpreter launches in the block to `launches`."""
    from triton.runtime.interpreter import InterpretedFunction

    run = InterpretedFunction.run

    def noting(self: Any, *arguments: Any, grid: Any, warmup: bool, **settings: Any) -> object:
        said = json.dumps(_said(arguments)), json.dumps(_said(settings))
        launches.add((self.fn.__module__, self.fn.__name__, *said))
        return run(self, *arguments, grid=grid, warmup=warmup, **settings)

    with patch.object(InterpretedFunction, "run", noting):
        yield


def refused(launches: set[Launch], timeout: float) -> dict[str, str]:
    """What the compiler says of each of these that it does not take."""
    shares: list[list[Launch]] = [[] for _ in range(PROCESSES)]
    for launch in sorted(launches):
        shares[zlib.crc32(launch[1].encode()) % PROCESSES].append(launch)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "support.compiled"], env={**os.environ, **CHECK}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in shares
    ]  # fmt: skip
    said: dict[str, str] = {}
    try:
        for process, share in zip(running, shares, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps(share))
            process.stdin.close()
            process.stdin = None
        for process in running:
            out, errors = process.communicate(timeout=timeout)
            assert process.returncode == 0, errors
            said |= json.loads(out)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return said


def _said(value: Any) -> Any:
    """As JSON; of a tensor its dtype, and whether it lies at an address as kernels like it."""
    if isinstance(value, dict):
        return {name: _said(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_said(each) for each in value]
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return {"tensor": dtype, "aligned": value.data_ptr() % ALIGNED == 0}
    if type(value).__name__ == "dtype":
        return {"type": str(value)}
    assert value is None or isinstance(value, (bool, int, float)), value
    return value


def _argument(said: Any) -> Any:
    """What stands in a launch's place for what was said of it."""
    import triton.language as tl

    if not isinstance(said, dict):
        return said
    return _Pointer(**said) if "tensor" in said else tl.dtype(said["type"])


class _Pointer:
    """A tensor, as far as a launch looks at it."""

    def __init__(self, tensor: str, aligned: bool) -> None:
        self.dtype, self._address = getattr(torch, tensor), 0 if aligned else 1

    def data_ptr(self) -> int:
        return self._address


class _NoCard:
    """A driver that there need be no card for, as long as nothing is launched."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget(*TARGET)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def _compile(launches: list[Launch]) -> dict[str, str]:
    from triton.runtime.driver import driver

    driver.set_active(_NoCard())
    found = {}
    for module, name, arguments, settings in launches:
        kernel = getattr(import_module(module), name)
        values = [_argument(each) for each in json.loads(arguments)]
        named = {key: _argument(each) for key, each in json.loads(settings).items()}
        try:
            compiled = kernel.run(*values, grid=(1,), warmup=True, **named)
            assert compiled.asm["cubin"]
        except Exception as error:
            found[f"{module}.{name} of {arguments}, {settings}"] = (
                f"{type(error).__name__}: {error}"
            )
    return found


if __name__ == "__main__":
    print(json.dumps(_compile(json.load(sys.stdin))))
