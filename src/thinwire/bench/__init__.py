"""Measurements, as JSON: what a recipe costs, beside what others do."""
