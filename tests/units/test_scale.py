"""What waits follows the loss scale, in a unit and as it was saved."""

import torch

from thinwire.feedback import Adam, Momentum, Residual
from thinwire.units.scale import rescale, rescaled


def test_what_waits_and_thresholds_that_were_of_it():
    state = {
        "feedback": {"residual": torch.ones(4)},
        "sparsifier": {"threshold": torch.tensor(3.0), "evaluated_at": torch.tensor(7)},
        "collective": {"factor/w": torch.ones(2)},
    }
    rescale(state, Residual(), 2.0)
    assert state["feedback"]["residual"].tolist() == [2.0] * 4
    assert (state["sparsifier"]["threshold"], state["sparsifier"]["evaluated_at"]) == (6.0, 7)
    assert state["collective"]["factor/w"].tolist() == [1.0, 1.0]


def test_a_saved_state_is_left_alone_and_its_copy_is_in_the_new_units():
    saved = {
        "step": torch.tensor(3),
        "feedback/velocity": torch.ones(4),
        "feedback/residual": torch.ones(4),
        "sparsifier/threshold": torch.tensor(3.0),
        "collective/factor/w": torch.ones(2),
    }
    copy = rescaled(saved, Momentum(), 0.5)
    assert copy.keys() == saved.keys() and int(copy["step"]) == 3
    assert copy["feedback/velocity"].tolist() == copy["feedback/residual"].tolist() == [0.5] * 4
    assert copy["sparsifier/threshold"] == 1.5
    assert copy["collective/factor/w"].tolist() == [1.0, 1.0]
    assert saved["feedback/residual"].tolist() == [1.0] * 4


def test_a_feedback_knows_its_own_units():
    saved = {f"feedback/{key}": torch.ones(2) for key in ("residual", "average_square")}
    saved["feedback/average_gradient"] = torch.ones(2)
    copy = rescaled(saved, Adam(), 4.0)
    assert [copy[key][0].item() for key in saved] == [1.0, 16.0, 4.0]
