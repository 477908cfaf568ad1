from functools import partial

import pytest
import torch
from perron_tests.graphs import IS_INTERPRETED

from perron.kernels import Backend, Kernels, gth_cpu, use


def make_backend(limit: int) -> Backend:
    """Return the CPU kernels with a different limit between short and long texts."""
    forward = partial(gth_cpu.forward, short_limit=limit)
    backward = partial(gth_cpu.backward, short_limit=limit)
    return Backend("numba", lambda: {"stationary": Kernels(forward, backward)})


def triton() -> dict[str, Kernels]:
    """Return Triton's kernels, which skip a test in float64."""
    from perron.kernels import gth_triton

    def forward(edges, *arguments):
        if edges.dtype != torch.float32:
            pytest.skip("Triton's kernels are for float32")
        return gth_triton.forward(edges, *arguments)

    return {"stationary": Kernels(forward, gth_triton.backward)}


KERNELS = {
    "short": make_backend(10**9),
    "long": make_backend(-1),
    "torch": "torch",
}
if IS_INTERPRETED:  # by tests/kernels/test_gth_triton.py
    KERNELS = {"triton": Backend("triton", triton)}
    MAX_WORDS = 65


@pytest.fixture(params=KERNELS)
def kernel(request):
    """Use one implementation of `stationary_distribution` for texts of all lengths."""
    params = request.node.callspec.params
    if IS_INTERPRETED and params.get("n", 0) > MAX_WORDS:
        pytest.skip("takes minutes in Triton's interpreter")
    with use(KERNELS[request.param]):
        yield request.param


@pytest.fixture(autouse=True)
def _uninitialized_memory_is_nan():
    """Make torch.empty return NaN, which tests of Triton's kernels notice."""
    torch.use_deterministic_algorithms(IS_INTERPRETED)
    yield
    torch.use_deterministic_algorithms(False)
