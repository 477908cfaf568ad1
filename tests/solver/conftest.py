from functools import partial

import pytest

from perron.kernels import Backend, Kernels, gth_cpu, use


def with_short_limit(limit: int) -> Backend:
    """Return the CPU's kernels with another limit between its two ways."""
    forward = partial(gth_cpu.forward, short_limit=limit)
    backward = partial(gth_cpu.backward, short_limit=limit)
    return Backend("numba", lambda: {"stationary": Kernels(forward, backward)})


KERNELS = {
    "short": with_short_limit(10**9),
    "long": with_short_limit(-1),
    "torch": "torch",
}


@pytest.fixture(params=KERNELS)
def kernel(request):
    """Make `stationary_distribution` use one implementation for texts of every length."""
    with use(KERNELS[request.param]):
        yield request.param
