"""What predictions are taken to mean. The rows are tested with the commands that write them."""

from thinwire.cost.predict import Prediction
from thinwire.plan.steps import diagnose


def test_doctor_says_when_it_is_not_sure() -> None:
    def step(seconds: float, low: float, high: float) -> Prediction:
        return Prediction(seconds, low, high, 0.0, ())

    dense = step(1.0, 0.9, 1.1)
    assert "overlap" in diagnose({"topk": step(0.8, 0.6, 0.95), "dense": dense}, 0.1)[1]
    assert "overlap" not in diagnose({"topk": step(0.5, 0.4, 0.6), "dense": dense}, 0.1)[1]
    assert diagnose({"topk": step(0.97, 0.9, 1.0), "dense": dense}, 0.1)[0] is False
    assert "hides behind" in diagnose({"dense": dense, "topk": step(1.1, 1.0, 1.2)}, 1.0)[1]
