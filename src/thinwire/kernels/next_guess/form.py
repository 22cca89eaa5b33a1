"""How fast a gap may change in a step, and between what it stays."""

LEAST_CHANGE, MOST_CHANGE = 0.25, 4.0
LEAST_GAP, MOST_GAP = 1e-6, 0.5
