"""Imported where a cluster's workers are forked from: Numba's first kernel takes most of a second,
to find out what there is to compile with, and the workers need not each find it out."""

import torch

from thinwire.kernels.checksum import checksum

checksum(torch.zeros(1, dtype=torch.int64))
