import pytest

from perron.kernels import gth_cpu, gth_torch


@pytest.fixture(params=["short", "long", "torch"])
def kernel(request, monkeypatch):
    """Make `stationary` use one implementation for texts of every length."""
    if request.param == "torch":
        monkeypatch.setattr(gth_cpu, "forward", gth_torch.forward)
        monkeypatch.setattr(gth_cpu, "backward", gth_torch.backward)
    else:
        monkeypatch.setattr(
            gth_cpu, "_SHORT", 10**9 if request.param == "short" else -1
        )
    return request.param
