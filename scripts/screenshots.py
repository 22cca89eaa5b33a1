"""The pictures in docs/images: real commands as a terminal shows them, and the demo's page.

    python scripts/screenshots.py [WHAT ...]     # demo, doctor, watch; all if none is named

Needs `thinwire[dev]`, Chromium, and a kernel that allows user namespaces. Takes minutes.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from os import geteuid
from pathlib import Path
from shutil import which

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
THINWIRE = [sys.executable, "-m", "thinwire.cli.app"]
LONGEST_S = 1200
WIDTH = 112  # letters
LOOK = "body { margin: 0; background: #292929 } svg { display: block; width: 960px }"

WATCHED = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import thinwire as tw

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
ddp = DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 256)))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
handle = tw.compress(ddp, "int4", truth=20)
with handle.watch(every=20, show=dist.get_rank() == 0):
    for step in range(160):
        x = torch.randn(64, 256)
        optimizer.zero_grad()
        (ddp(x) - x).square().mean().backward()
        optimizer.step()
handle.close()
dist.destroy_process_group()
"""


def output_of(*command: str) -> str:
    """What a command says; one that fails ends this script with what it said."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def terminal(page: Page, name: str, typed: str, text: str) -> None:
    """A command and its output, as a window."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere)
        console.print(Text(f"$ {typed}", style="bold"))
        console.print(Text("\n".join(line.rstrip() for line in text.strip("\n").splitlines())))
    page.set_content(f"<style>{LOOK}</style>{console.export_svg(title='thinwire')}")
    page.locator("svg").first.screenshot(path=IMAGES / f"{name}.png")


def demo(page: Page) -> None:
    """The page, and what the terminal says at the end."""
    with tempfile.TemporaryDirectory() as folder:
        text = output_of(*THINWIRE, "demo", "--out", folder)
        terminal(page, "demo-terminal", "thinwire demo", text.replace(folder, "runs/demo"))
        page.goto((Path(folder) / "index.html").as_uri())
        page.screenshot(path=IMAGES / "demo-page.png")


def doctor(page: Page) -> None:
    """A DDP script over a slow link, and over a fast one."""
    for name, rate in (("slow", "100mbit"), ("fast", "none")):
        lab = ["lab", "--workers", "2", "--rate", rate, "--check", "warn", "--"]
        looked_at = ["doctor", "--refresh", "--recipes", "bf16,int8,int4", "--", "examples/ddp.py"]
        text = output_of(*THINWIRE, *lab, "torchrun", "-m", "thinwire.cli.app", *looked_at)
        lab = [word for word in lab if word not in ("--check", "warn")]  # doctor measures the link
        typed = f"thinwire {' '.join(lab)} torchrun -m thinwire.cli.app {' '.join(looked_at)}"
        terminal(page, f"doctor-{name}", typed, text)


def watch(page: Page) -> None:
    """The live table, as its last line left it."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(WATCHED)
        lab = ["lab", "--workers", "2", "--rate", "100mbit", "--", "torchrun"]
        text = output_of(*THINWIRE, *lab, str(script))
    before = [line for line in WATCHED.splitlines() if "handle" in line][:2]
    code = "\n".join(["# train.py", *before, "    ...", ""])
    terminal(page, "watch", f"thinwire {' '.join(lab)} train.py", code + text)


PICTURES: dict[str, Callable[[Page], None]] = {"demo": demo, "doctor": doctor, "watch": watch}


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    sandbox = ["--no-sandbox"] if geteuid() == 0 else []  # Chromium's own rule for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=sandbox)
        page = browser.new_page(viewport={"width": 960, "height": 1000})
        for what in sys.argv[1:] or PICTURES:
            PICTURES[what](page)


if __name__ == "__main__":
    main()
