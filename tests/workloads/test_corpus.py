"""Real text and images: what is held out is never trained on, and the same every time."""

import re
from pathlib import Path

import numpy as np
import pytest

from support.extras import needs
from thinwire.errors import ThinwireError
from thinwire.workloads import corpus


def folder_of_text(folder: Path, count: int) -> Path:
    for number in range(count):
        (folder / "inner").mkdir(parents=True, exist_ok=True)
        (folder / "inner" / f"{number}.md").write_text(f"word{number} " * 50)
    (folder / "not-text.bin").write_bytes(b"\0")
    return folder


def test_whole_files_are_held_out_one_of_ten(tmp_path: Path) -> None:
    seen, unseen = corpus.text(folder_of_text(tmp_path, 40))
    names = [set(re.findall(rb"word\d+", part)) for part in (seen, unseen)]
    assert not names[0] & names[1] and len(names[0] | names[1]) == 40 and len(names[1]) == 4


def test_a_single_file_is_cut_into_pieces(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    text = "".join(f"{number:07}\n" for number in range(100_000))
    path.write_text(text)
    seen, unseen = (set(part.split()) for part in corpus.text(path))
    whole = set(text.encode().split())
    assert len(unseen & whole) == 3 * corpus.PIECE // 8  # of 25 pieces
    assert len(seen & whole) > 85_000 and not seen & unseen & whole


def test_the_standard_library_reads_the_same_every_time_and_no_more_than_asked() -> None:
    first, again = corpus.text(None, 1 << 19), corpus.text(None, 1 << 19)
    assert first == again and b"def " in first[0] and b"def " in first[1]
    assert 1 << 19 <= sum(map(len, first)) < 1 << 22


@pytest.mark.parametrize("what", ["missing", "empty", "short.txt"])
def test_text_that_is_none_is_refused_by_name(tmp_path: Path, what: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "short.txt").write_text("too short")
    with pytest.raises(ThinwireError, match=what):
        corpus.text(tmp_path / what)


def test_words_are_numbered_by_what_is_trained_on(tmp_path: Path) -> None:
    arrays = corpus.as_words(None, 500, most=1 << 18)
    counts = np.bincount(arrays["train"], minlength=500)
    assert (np.diff(counts) <= 0).all() and counts[499] > 0
    assert arrays["held_out"].max() < 500 and len(arrays["held_out"]) > 100


@needs("sklearn")
def test_digits_are_images_with_a_part_held_out() -> None:
    arrays = corpus.images(None)
    assert arrays["train"].shape == (1437, 3, 16, 16) and arrays["held_out"].shape[0] == 360
    assert arrays["train"].dtype == np.uint8 and arrays["train"].max() == 255
    assert set(arrays["held_out_labels"]) == set(range(10))


def test_without_scikit_learn_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "find_spec", lambda name: None)
    with pytest.raises(ThinwireError, match="--images"):
        corpus.images(None)


@needs("PIL")
def test_a_folder_of_images_has_a_class_for_each_folder(tmp_path: Path) -> None:
    from PIL import Image

    for number, colour in enumerate(["red", "blue"]):
        (tmp_path / colour).mkdir()
        for image in range(15):
            Image.new("RGB", (40, 30 + image + number), colour).save(
                tmp_path / colour / f"{image}.png"
            )
    arrays = corpus.images(tmp_path)
    assert len(arrays["train"]) == 27 and len(arrays["held_out"]) == 3
    red = arrays["train"][arrays["train_labels"] == 1]  # blue comes first
    assert (red[:, 0] == 255).all() and (red[:, 2] == 0).all()
    with pytest.raises(ThinwireError, match="2 classes"):
        corpus.images(tmp_path / "red")
