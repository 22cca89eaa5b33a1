"""A change of the loss scale: what waits is in the old one's units, wherever it is kept."""

from thinwire.pipeline import PipelineState
from thinwire.types import Feedback
from thinwire.units.unit import SavedState


def rescale(state: PipelineState, feedback: Feedback, factor: float) -> None:
    """Follow it in a unit's state, in place: what waits, and the thresholds that it has passed."""
    feedback.rescale(state["feedback"], factor)
    for value in state["sparsifier"].values():
        if value.is_floating_point():
            value.mul_(factor)


def rescaled(saved: SavedState, feedback: Feedback, factor: float) -> SavedState:
    """The state of a tensor that is in no unit now, in the new units; others may hold the old."""
    copy = {path: value.clone() for path, value in saved.items()}
    pieces: PipelineState = {"feedback": {}, "sparsifier": {}}
    for path, value in copy.items():
        piece, _, key = path.partition("/")
        pieces.setdefault(piece, {})[key] = value
    rescale(pieces, feedback, factor)
    return copy
