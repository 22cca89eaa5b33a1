"""What is compiled is counted, once."""

import numpy as np
from numba import njit

from thinwire.kernels.compilations import compilations


def test_a_kernel_counts_when_it_is_new():
    @njit
    def double(x):
        return x * 2

    before = compilations()
    double(np.ones(3))
    compiled = compilations()
    assert compiled > before
    double(np.ones(3))
    assert compilations() == compiled
    double(np.ones(3, np.float32))
    assert compilations() > compiled
