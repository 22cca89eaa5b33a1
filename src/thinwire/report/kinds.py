"""What a row measures, told by its fields."""

from collections.abc import Iterable
from dataclasses import dataclass

from thinwire.results.file import Row


@dataclass(frozen=True)
class Kind:
    """What a row measures. A row that has all `fields` is of this kind."""

    name: str
    title: str
    fields: frozenset[str]
    series: str  # the field whose values are compared: a colour each
    note: str = ""

    def fits(self, row: Row) -> bool:
        return self.fields <= row.keys()


KINDS = (
    Kind(
        "sync",
        "Synchronising one gradient",
        frozenset(
            [
                "recipe",
                "workers",
                "rate",
                "n",
                "density",
                "seconds",
                "seconds_by_phase",
                "bytes_sent_per_rank",
            ]
        ),
        "recipe",
        "Parts of a bar are means over the ranks; the number at its end is the slowest rank's "
        "time, the median over the steps. A bar that reaches the frame goes on beyond it.",
    ),
    Kind(
        "train",
        "Training",
        frozenset(
            ["recipe", "workers", "rate", "model", "step", "loss", "seconds", "bytes_sent_per_rank"]
        ),
        "recipe",
        "Losses are means over the ranks and over the steps since the row before.",
    ),
    Kind(
        "simulate",
        "Simulated clusters",
        frozenset(
            ["recipe", "workers", "alpha", "beta", "n", "density", "seconds", "bytes_per_rank"]
        ),
        "recipe",
        "Computed from the α-β model, not measured.",
    ),
    Kind(
        "kernels",
        "Kernels",
        frozenset(["op", "impl", "device", "n", "density", "seconds", "floor_seconds", "ratio"]),
        "impl",
        "The floor is the time to move the bytes an operation must move, at the bandwidth measured "
        "in the same run.",
    ),
    Kind(
        "codecs",
        "Codecs",
        frozenset(
            [
                "part",
                "codec",
                "distribution",
                "n",
                "density",
                "bits_per_item",
                "encode_items_per_s",
                "decode_items_per_s",
                "entropy_bits",
            ]
        ),
        "codec",
        "The line is the entropy: what no lossless codec can go below.",
    ),
)
OTHER = Kind("other", "Other rows", frozenset(), "recipe")


def by_kind(rows: Iterable[Row]) -> dict[Kind, list[Row]]:
    """The rows of each kind there is, in the order of `KINDS`."""
    found: dict[Kind, list[Row]] = {kind: [] for kind in (*KINDS, OTHER)}
    for row in rows:
        found[next(kind for kind in found if kind.fits(row))].append(row)
    return {kind: members for kind, members in found.items() if members}
