from functools import partial

import pytest
from perron_tests.triton import MAX_WORDS, with_triton

from perron.kernels import Backend, Kernels, gth_cpu, use


def make_backend(limit: int) -> Backend:
    """Return the CPU kernels with a different limit between short and long texts."""
    forward = partial(gth_cpu.forward, short_limit=limit)
    backward = partial(gth_cpu.backward, short_limit=limit)
    return Backend("numba", lambda: {"stationary": Kernels(forward, backward)})


KERNELS = with_triton(
    {
        "short": make_backend(10**9),
        "long": make_backend(-1),
        "torch": "torch",
    }
)


@pytest.fixture(params=KERNELS)
def kernel(request):
    """Use one implementation of `stationary_distribution` for texts of all lengths."""
    if request.node.callspec.params.get("n", 0) > MAX_WORDS:
        pytest.skip("takes minutes in an interpreter")
    with use(KERNELS[request.param]):
        yield request.param
