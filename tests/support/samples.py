"""Rows of every kind, recorded or made up, and how an image is judged."""

from io import BytesIO
from pathlib import Path

from PIL import Image

from thinwire.results.file import ResultFile, Row

HERE = Path(__file__).parent
RECORDED = HERE.parents[1] / "docs" / "results"
DEMO = HERE / "demo.json"
STEPS, TIMELINE = HERE / "steps.json", HERE / "timeline.json"  # of `bench train --device cpu`


def kernels() -> list[Row]:
    return [
        {
            "op": op,
            "impl": impl,
            "device": "cpu",
            "n": n,
            "density": 0.01,
            "seconds": factor * n * 1e-9,
            "floor_seconds": n * 1e-9,
            "ratio": factor,
        }
        for op in ("compact", "merge")
        for impl, factor in (("numba", 1.2), ("torch", 40.0))
        for n in (2**20, 2**22, 2**24)
    ]


def codecs() -> list[Row]:
    return [
        {
            "part": part,
            "codec": codec,
            "distribution": "uniform",
            "n": 1_000_000,
            "density": 0.01,
            "bits_per_item": bits,
            "encode_items_per_s": 1e9 / bits,
            "decode_items_per_s": 5e8 / bits,
            "relative_error": 0.0,
            "entropy_bits": 8.08 if part == "index" else None,
        }
        for part, codec, bits in (
            ("index", "raw", 32.0),
            ("index", "rice", 8.12),
            ("value", "bf16", 16.0),
        )
    ]


def simulate() -> list[Row]:
    return [
        {
            "recipe": recipe,
            "workers": workers,
            "alpha": 5e-5,
            "beta": 8e-9,
            "n": 25_600_000,
            "density": None if recipe == "dense" else 0.001,
            "seconds": factor * workers,
            "bytes_per_rank": round(1e6 * factor * workers),
        }
        for recipe, factor in (("dense", 0.1), ("gtopk", 0.01))
        for workers in (4, 16, 64, 256)
    ]


def write(folder: Path) -> list[Path]:
    """The made-up rows as result files in `folder`; it and the recorded ones."""
    made = {"kernels": kernels(), "codecs": codecs(), "simulate": simulate()}
    for name, rows in made.items():
        ResultFile(folder / f"{name}.json").add(rows)
    return [folder, *recorded()]


def recorded() -> list[Path]:
    return [DEMO, RECORDED / "sync-8-workers.json", RECORDED / "sync-scaling.json"]


def colours(png: bytes) -> int:
    """How many there are in an image: a blank one has one."""
    image = Image.open(BytesIO(png)).convert("RGB")
    return len(image.getcolors(maxcolors=image.width * image.height) or [])
