import pytest

from perron.solver import gth_cpu, gth_torch


@pytest.fixture(params=["short", "long", "torch"])
def kernel(request, monkeypatch):
    """Make `stationary` use one implementation for texts of every length."""
    if request.param == "torch":
        monkeypatch.setattr(gth_cpu, "forward", gth_torch.forward)
        monkeypatch.setattr(gth_cpu, "backward", gth_torch.backward)
    elif request.param == "short":
        monkeypatch.setattr(gth_cpu, "_WORTH_A_GROUP", 1)
        monkeypatch.setattr(gth_cpu, "_SHORT", 10**9)
    else:
        monkeypatch.setattr(gth_cpu, "_SHORT", -1)
    return request.param
