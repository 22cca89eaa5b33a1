"""Kernels against the floor that memory sets."""
