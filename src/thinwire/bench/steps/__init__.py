"""Whole steps of real models, over shaped links: on GPUs with NCCL, or on the CPU with Gloo."""
