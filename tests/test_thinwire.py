"""The public surface: every name is there, and `import thinwire` needs only the core.

Covers version.py.
"""

import subprocess
import sys

import pytest

import thinwire as tw


def test_every_public_name_exists_and_is_documented() -> None:
    assert list(tw.__all__) == sorted(tw.__all__, key=lambda name: (name.islower(), name))
    assert all(getattr(tw, name).__doc__ for name in tw.__all__)


@pytest.mark.parametrize("base", ["Sparsifier", "Codec", "LinearCodec", "Collective", "Feedback"])
def test_the_base_classes_are_public(base: str) -> None:
    with pytest.raises(TypeError, match="abstract"):
        getattr(tw, base)()


def test_recipes_is_a_function_and_hides_no_package() -> None:
    assert "topk" in tw.recipes()
    with pytest.raises(ModuleNotFoundError):
        __import__("thinwire.recipes")


def test_old_names_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"thinwire\.recipe"):
        pipeline = tw.resolve("topk(0.02) | raw | allgather | residual")
    assert pipeline == tw.recipe("topk(0.02) | raw | allgather | residual")
    with pytest.warns(DeprecationWarning, match=r"Pipeline\.to_dict"):
        assert tw.to_dict(pipeline) == pipeline.to_dict()


def test_importing_it_brings_in_only_the_core() -> None:
    program = (
        "import sys, thinwire; "
        "extras = {'typer', 'rich', 'matplotlib', 'sklearn', 'yaml', 'zstandard', 'pcodec'}; "
        "print(sorted(extras & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"
