"""Models, tasks and gradients to measure with."""
