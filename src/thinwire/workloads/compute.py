"""The compute that a step of a known model is declared to take.

An assumption, not a measurement: a GPU that sustains half of the 15.7 TFLOP/s that NVIDIA's data
sheet gives a V100 (SXM2, float32), on 32 images or 8 sequences at a time. A multiply-add is two
operations, and a step is three times the forward pass's work.
"""

from thinwire.workloads.shapes import multiply_adds

SUSTAINED = 15.7e12 / 2  # operations per second
IMAGES, SEQUENCES = 32, 8
READS_TEXT = frozenset({"gpt2", "bert-base"})


def declared_compute(model: str) -> float:
    """Seconds per step."""
    inputs = SEQUENCES if model in READS_TEXT else IMAGES
    return round(3 * 2 * sum(multiply_adds(model).values()) * inputs / SUSTAINED, 3)
