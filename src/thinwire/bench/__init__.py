"""Measurements, as JSON: what a recipe costs, beside what everybody else does."""
