"""A script of a user's, watched from outside: real torchrun, a real DDP script, unchanged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.extras import CLI, needs
from thinwire.errors import ThinwireError
from thinwire.plan.models import Model
from thinwire.plan.observe import Observed, Watcher, observe

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = torch.nn.Linear(200, 100)
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    ddp(torch.ones(4, 200)).sum().backward()
    optimizer.step()
print("the end")
"""


@needs(*CLI)
def test_some_steps_of_it_are_looked_at_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ["--workers", "2", "--recipes", "bf16", "--gbps", "0.01", "--steps", "12"]
    command = [sys.executable, "-m", "thinwire.cli.app", "doctor", *options]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "out.json"), "--", "train.py", "100"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "the end" not in done.stdout
    assert "train.py as it is: a step takes" in done.stdout and "By itself it takes" in done.stdout
    assert "Yes: bf16 takes" in done.stdout
    assert 'thinwire.compress(ddp, "bf16")' in done.stdout
    *steps, summary = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert steps[0]["n"] == 200 * 100 + 100 and steps[0]["workers"] == 2
    assert summary["answer"] == "yes" and "waited for" in summary["observed"]
    assert [tier["recipe"] for tier in summary["gain_by_quality"]] == ["dense", "bf16", "bf16"]


def test_a_script_that_gives_nothing_to_look_at_is_told(tmp_path: Path) -> None:
    script = tmp_path / "no.py"
    script.write_text("import sys; assert sys.argv[1:] == ['a']")
    before = list(sys.argv)
    with pytest.raises(ThinwireError, match=r"no\.py made no DistributedDataParallel model"):
        observe(script, ["a"], 10, lambda observed: None)
    assert sys.argv == before


def test_what_was_seen_in_words() -> None:
    import torch

    model = Model("train.py", {"weight": (2, 2)}, compute=0.04)
    seen = Observed(model, 0.1, 4, torch.device("cpu"), exchange=0.08)
    assert seen.waited == pytest.approx(0.06)
    assert "a step takes 100 ms, of which 40 ms are compute" in str(seen) and "60%" in str(seen)
    assert "By itself it takes 80 ms: 25% of it hides" in str(seen)


def test_a_hook_that_the_script_has_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    from thinwire.frontends.ddp import DDPHandle

    monkeypatch.setattr(DistributedDataParallel, "register_comm_hook", lambda *given: None)
    ddp = DistributedDataParallel.__new__(DistributedDataParallel)
    for hook, name in ((bf16_compress_hook, "bf16_compress_hook"), (DDPHandle._hook, "thinwire")):
        watcher = Watcher("train.py", 30, lambda observed: None)
        with watcher.watching():
            ddp.register_comm_hook(None, hook)
        assert watcher.hook == name
