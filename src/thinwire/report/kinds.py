"""What a row measures, told by its fields."""

from collections.abc import Iterable
from dataclasses import dataclass

from thinwire.results.file import Row


@dataclass(frozen=True)
class Kind:
    """A row that has all `fields` is of this kind."""

    name: str
    title: str
    fields: str  # with a space between them
    series: str  # the field whose values are compared: a colour each
    note: str = ""

    def fits(self, row: Row) -> bool:
        return row.keys() >= set(self.fields.split())


KINDS = (
    Kind(
        "converge",
        "Time to a loss",
        "recipe workers rate model optimizer reached speedup final_gap points",
        "recipe",
        "Held-out loss, the mean over the seeds; bands reach from the lowest seed to the highest. "
        "Targets are PyTorch's bf16 hook's last loss plus one deviation, and its loss after half "
        "and a quarter of its steps. Curves were run without shaping; seconds come from steps that "
        "were timed on shaped links.",
    ),
    Kind(
        "runs",
        "Runs",
        "recipe workers rate model optimizer learning_rate seed points final_loss",
        "recipe",
        "Each seed, and each learning rate that was tried. One with a rate was run there from end "
        "to end.",
    ),
    Kind(
        "verified",
        "Predicted seconds, and real ones",
        "recipe workers rate model predicted_seconds real_seconds",
        "recipe",
    ),
    Kind(
        "sync",
        "Synchronising one gradient",
        "recipe workers rate n density seconds seconds_by_phase bytes_sent_per_rank",
        "recipe",
        "Parts of a bar are means over the ranks; the number at its end is the slowest rank's "
        "time, the median over the steps. A bar that reaches the frame goes on beyond it.",
    ),
    Kind(
        "train",
        "Training",
        "recipe workers rate model step loss seconds bytes_sent_per_rank",
        "recipe",
        "Losses are means over the ranks and over the steps since the row before.",
    ),
    Kind(
        "steps",
        "Whole steps of real models",
        "recipe workers rate model device step_seconds above_compute_seconds bytes_per_step",
        "recipe",
        "Medians of the time between two ends of steps; compute alone has no exchange. In colour: "
        "what is compared with, auto, and the fastest of each side at each rate.",
    ),
    Kind(
        "timeline",
        "One step as it went by",
        "recipe workers rate model stream what start end",
        "what",
        "What each stream of rank 0's GPU was busy with; on the CPU, each thread.",
    ),
    Kind(
        "simulate",
        "Simulated clusters",
        "recipe workers alpha beta n density seconds bytes_per_rank",
        "recipe",
        "Computed from the α-β model, not measured.",
    ),
    Kind(
        "kernels",
        "Kernels",
        "op impl device n density seconds floor_seconds ratio",
        "impl",
        "The floor is the time to move the bytes an operation must move, at the bandwidth measured "
        "in the same run.",
    ),
    Kind(
        "codecs",
        "Codecs",
        "part codec distribution n density bits_per_item encode_items_per_s decode_items_per_s "
        "entropy_bits",
        "codec",
        "The line is the entropy: what no lossless codec can go below.",
    ),
    Kind(
        "paper",
        "Figures of papers",
        "paper item panel curves",
        "item",
        "Whole lines were measured here; lines of dashes are the paper's own or computed.",
    ),
    Kind("verdict", "What holds of the papers", "paper item says theirs ours verdict", "item"),
)
OTHER = Kind("other", "Other rows", "", "recipe")


def by_kind(rows: Iterable[Row]) -> dict[Kind, list[Row]]:
    """The rows of each kind there is, in the order of `KINDS`."""
    groups: dict[Kind, list[Row]] = {kind: [] for kind in (*KINDS, OTHER)}
    for row in rows:
        groups[next(kind for kind in groups if kind.fits(row))].append(row)
    return {kind: members for kind, members in groups.items() if members}
