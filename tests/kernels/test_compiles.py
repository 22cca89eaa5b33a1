"""Every Triton kernel is compiled for a GPU, with the arguments that it is launched with.

No card is needed for that. What the kernels compute is shown by the other tests, in Triton's
interpreter, which takes more than the compiler does.
"""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import thinwire as tw
from engine.test_steady_step import RECIPES, gradients, run
from support.compiled import noted, refused
from support.implementations import HAS_GPU
from support.interpreter import hasten
from support.launches import as_on_a_gpu
from thinwire.bench.kernels.ops import GROUPS, KERNELS, Inputs
from thinwire.kernels import use
from thinwire.kernels.compact import compact
from thinwire.kernels.exact_topk import largest_of
from thinwire.kernels.quantise import quantise

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="there is no triton to compile with"),
    pytest.mark.skipif(HAS_GPU, reason="launches are noted in the interpreter; here all are made"),
]

SOURCES = Path(tw.__file__).parent
NUMEL, DENSITY = 6000, 0.01
COMPILE_S = 240
MORE_RECIPES = [
    "int4",
    "topk(0.1, codec='regional+bf16', unit='bucket')",
    "topk(0.1, codec='regional+fp16')",
    "dgc(0.1, codec='regional+bf16')",
    "dragonn(0.1, codec='chunk12+centroid2')",
    "ok-topk(0.1, codec='regional+bf16')",
    "block(0.1, 16) | sketch(0.5) | sketch-allreduce | residual",
]


@pytest.fixture(scope="module")
def launches():
    """What recipes launch in their steps, and the operations that no recipe has in a steady one."""
    found = set()
    hasten()
    with noted(found), use("triton"), as_on_a_gpu():
        for work in operations():
            work()
        for recipe in [*RECIPES, *MORE_RECIPES]:
            sync = tw.Synchronizer(recipe)
            for step in range(2):
                run(sync, gradients(step))
    return found


def operations():
    x = Inputs(NUMEL, DENSITY, torch.device("cpu"))
    for op in KERNELS:
        if op.impl == "ours" and not any(f" {many}" in op.name for many in GROUPS[1:]):
            yield op.prepare(x)
    yield lambda: largest_of(compact(x.x, x.threshold, 2 * x.k), x.x, x.k)
    yield lambda: quantise(x.x.abs(), 7)


def launched_anywhere():
    """The kernels that are launched by name, each with its operation's folder."""
    for path in SOURCES.glob("kernels/*/*.py"):
        tree = ast.parse(path.read_text())
        own = {f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}
        launched = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                own |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                launched.add(ast.unparse(node.func.value))
        yield from ((path.parent.name, name) for name in launched & own)


def test_every_kernel_compiles_for_all_that_it_is_launched_with(launches):
    assert refused(launches, COMPILE_S) == {}


def test_no_kernel_is_left_out(launches):
    compiled = {(module.split(".")[2], name) for module, name, *_ in launches}
    assert set(launched_anywhere()) - compiled == set()


def test_what_the_interpreter_forgives_is_seen():
    from support.forgiven import two_types

    found = set()
    with noted(found):
        two_types[(1,)](torch.ones(1), 2)  # no 1: of that a constant is made
    said = refused(found, COMPILE_S)
    assert [error.partition(":")[0] for error in said.values()] == ["CompilationError"]
