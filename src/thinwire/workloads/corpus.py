"""Real text and real images as arrays, with a part that nobody trains on.

Text is Python's own standard library, sources with their documentation, or what the user names.
What is held out are whole files (of a single file whole pieces), drawn by name, so that both
parts read alike and no window lies in both.
"""

import os
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thinwire.errors import ThinwireError
from thinwire.rng import fingerprint
from thinwire.workloads.tasks import digit_images

Arrays = dict[str, NDArray[Any]]
TEXT = frozenset({".py", ".md", ".rst", ".txt"})
IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp"})
HELD_OUT = 10  # one document of so many
FEW = 2 * HELD_OUT  # documents: fewer are cut into pieces
PIECE = 1 << 15  # bytes
MOST = 1 << 25  # bytes that are read
SIDE = 32  # pixels, of a user's images
WORDS = re.compile(r" ?\w+| ?[^\w\s]+|\s+")  # as GPT-2 cuts text before it pairs bytes
NAMES = re.compile(r"\w+")


def text(source: Path | None, most: int = MOST) -> tuple[bytes, bytes]:
    """What is trained on, and what is held out; at most so many bytes together."""
    documents = _documents(source, most)
    if len(documents) < FEW:
        whole = b"\n".join(documents)
        documents = [whole[at : at + PIECE] for at in range(0, len(whole), PIECE)]
    if len(documents) < HELD_OUT:
        raise ThinwireError(f"{source}: {sum(map(len, documents)):,} bytes of text are too few")
    unseen = documents[::HELD_OUT]
    seen = [document for place, document in enumerate(documents) if place % HELD_OUT]
    return b"\n".join(seen), b"\n".join(unseen)


def _documents(source: Path | None, most: int) -> list[bytes]:
    """In an order that has nothing to do with their names."""
    if source is not None and source.is_file():
        return [source.read_bytes()[:most]]
    folder = Path(sysconfig.get_path("stdlib")) if source is None else source
    if not folder.is_dir():
        raise ThinwireError(f"{folder}: there is no such file or folder of text")
    wanted = TEXT if source else {".py"}
    files = [
        Path(inside, name)
        for inside, folders, names in os.walk(folder)
        if _keep_own(folders)
        for name in names
        if Path(name).suffix in wanted
    ]
    files.sort(key=lambda file: fingerprint(file.relative_to(folder).as_posix()))
    documents, size = [], 0
    for file in files:
        if size < most:
            documents.append(file.read_bytes())
            size += len(documents[-1])
    if not documents:
        raise ThinwireError(f"{folder}: no text in this folder ({', '.join(sorted(TEXT))})")
    return documents


def _keep_own(folders: list[str]) -> bool:
    """Let a walk leave out what others installed: it is large, and different everywhere."""
    folders[:] = [name for name in folders if name not in ("site-packages", "dist-packages")]
    return True


def as_bytes(source: Path | None, most: int = MOST) -> Arrays:
    """Text byte by byte."""
    seen, unseen = text(source, most)
    return {
        "train": np.frombuffer(seen, dtype=np.uint8).copy(),
        "held_out": np.frombuffer(unseen, dtype=np.uint8).copy(),
    }


def as_words(
    source: Path | None, vocabulary: int, pattern: re.Pattern[str] = WORDS, most: int = MOST
) -> Arrays:
    """Text as numbers of words, 0 for the commonest of what is trained on; others are left out."""
    seen, unseen = (pattern.findall(part.decode(errors="ignore")) for part in text(source, most))
    common = Counter(seen).most_common(vocabulary)
    numbers = {word: number for number, (word, _) in enumerate(common)}
    return {"train": _numbered(seen, numbers), "held_out": _numbered(unseen, numbers)}


def _numbered(words: Iterable[str], numbers: dict[str, int]) -> NDArray[np.int32]:
    return np.array([numbers[word] for word in words if word in numbers], dtype=np.int32)


def images(source: Path | None) -> Arrays:
    """Pixels in [0, 255] as (count, 3, side, side), and labels: scikit-learn's digits, twice as
    large, or a folder with a folder of images for each class."""
    if source is not None:
        return _folder_of_images(source)
    if find_spec("sklearn") is None:
        raise ThinwireError(
            "images are scikit-learn's digits: pip install scikit-learn, or name a folder of your "
            "own with --images"
        )
    arrays: Arrays = {}
    for part, (pixels, labels) in zip(("train", "held_out"), digit_images(), strict=True):
        grey = ((pixels * 6.0 + 4.9) * 255 / 16).round().clamp(0, 255).byte().numpy()
        arrays[part] = grey.repeat(2, axis=2).repeat(2, axis=3).repeat(3, axis=1)
        arrays[f"{part}_labels"] = labels.numpy()
    return arrays


def _folder_of_images(folder: Path) -> Arrays:
    if find_spec("PIL") is None:
        raise ThinwireError("reading images needs Pillow: pip install pillow")
    from PIL import Image

    found = [file for file in sorted(folder.glob("*/*")) if file.suffix.lower() in IMAGES]
    classes = sorted({file.parent.name for file in found})
    if len(classes) < 2 or len(found) < FEW:
        raise ThinwireError(
            f"{folder}: {len(found)} images in {len(classes)} classes; it needs a folder for each "
            f"of at least 2 classes, and {FEW} images"
        )
    found.sort(key=lambda file: fingerprint(file.relative_to(folder).as_posix()))
    pixels = np.empty((len(found), 3, SIDE, SIDE), dtype=np.uint8)
    for place, file in enumerate(found):
        with Image.open(file) as image:
            pixels[place] = np.asarray(image.convert("RGB").resize((SIDE, SIDE))).transpose(2, 0, 1)
    labels = np.array([classes.index(file.parent.name) for file in found])
    unseen = np.arange(len(found)) % HELD_OUT == 0
    return {
        "train": pixels[~unseen],
        "train_labels": labels[~unseen],
        "held_out": pixels[unseen],
        "held_out_labels": labels[unseen],
    }
