"""What a page draws and refers to, read as a browser would."""

from html.parser import HTMLParser
from typing import Self

VOID = {"meta", "br", "input"}


class Reader(HTMLParser):
    """Checks that tags nest, and remembers lines, references and names."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.lines: dict[str, list[str]] = {}
        self.references: list[str] = []
        self.ids: list[str] = []
        self.recipe: str | None = None  # of the line whose path comes next

    @classmethod
    def of(cls, html: str) -> Self:
        reader = cls()
        reader.feed(html)
        reader.close()
        return reader

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.references += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        self.ids += [v or "" for k, v in attrs if k == "id"]
        if tag == "g" and found.get("class") == "line":
            self.recipe = found["data-recipe"]
        if tag == "path" and self.recipe is not None:
            self.lines.setdefault(self.recipe, []).append(found["d"] or "")
            self.recipe = None

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
