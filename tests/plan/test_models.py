"""Models to plan for: the known ones, and the user's own."""

from pathlib import Path

import pytest

from thinwire.errors import ThinwireError
from thinwire.plan.models import find_model

OWN_MODEL = """
import torch
def network():
    return torch.nn.Linear(100, 200)
def table():
    return {"a": (10, 20), "b": [30]}
def nothing():
    return 3
def odd():
    return {"a": 5}
def needy(size):
    return {"a": (size,)}
SIZES = {"a": (1,)}
"""


def test_models_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN_MODEL)
    assert find_model("mine:network").shapes == {"weight": (200, 100), "bias": (200,)}
    assert find_model("mine:table").numel == 230
    for name, problem in (
        ("mine:nothing", "dict of shapes"),
        ("mine:odd", "dict of shapes"),
        ("mine:needy", "without arguments"),
        ("mine:SIZES", "without arguments"),
        ("mine:absent", "no model"),
        ("absent:model", "no model"),
        ("resnet51", "resnet50"),
    ):
        with pytest.raises(ThinwireError, match=problem):
            find_model(name)


def test_a_near_name_is_offered_and_a_script_is_told_of_doctor():
    with pytest.raises(ThinwireError, match=r"'resnet5' \(did you mean 'resnet50'\?\)"):
        find_model("resnet5")
    with pytest.raises(ThinwireError, match=r"thinwire doctor -- train\.py"):
        find_model("train.py")
