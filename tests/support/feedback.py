"""What the feedback tests share: a unit's spec, and an exchange with nobody else."""

import torch

from thinwire.types import Reduced, Sparse, TensorSpec


def spec(numel, dtype=torch.float32):
    return TensorSpec("w", numel, dtype, torch.device("cpu"))


def top(x, k):
    """The k largest of x, as a sparsifier would choose them."""
    indices = x.abs().topk(k).indices.sort().values
    return Sparse(indices, x[indices], x.numel())


def alone(delivered):
    """What an exchange brings the only rank: what it delivered. And the mean of it."""
    total = delivered.to_dense() if isinstance(delivered, Sparse) else delivered.clone()
    return Reduced(total, delivered), total.clone()


def gradients(steps, numel, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(numel, generator=g, dtype=torch.float64).to(dtype) for _ in range(steps)]
