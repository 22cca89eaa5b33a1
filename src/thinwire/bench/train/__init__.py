"""Whole training steps over shaped links."""
