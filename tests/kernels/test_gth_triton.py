"""The solver's Triton kernels, in addition to the solver's behavior tests."""

from contextlib import contextmanager

import pytest
import torch
from perron_tests.graphs import random_mask, softmax_edges
from perron_tests.reference import (
    kmr_sequential,
    nearly_decomposable,
    score_gradient_in_80_digits,
    stationary_in_80_digits,
)
from perron_tests.synchronization import NoSynchronization
from perron_tests.triton import DEVICE, TRITON, runs_triton, triton_kernels

from perron import CentralityPool
from perron.kernels import (
    BACKENDS,
    gth_torch,
    select,
    select_for_graph,
    selected,
    use,
)
from perron.kernels.self_check import _TRIALS, _find_flaw

pytestmark = runs_triton


def solve(edges, mask, grad, kernels=None):
    kernels = kernels or triton_kernels("stationary")
    weights, factors, plan = kernels.forward(edges, mask, True)
    return weights, kernels.backward(grad, factors, mask, plan)


LARGEST = {"interpreter": 65, "ptx": 130}  # words; more take minutes


@pytest.mark.parametrize(
    "n", [1, 2, 15, 16, 17, 32, 33, 64, 65, 130, 200, 400, 512, 513, 700]
)
def test_sizes_around_those_of_blocks_give_the_result_of_torch(n):
    if n > LARGEST.get(DEVICE, n):
        pytest.skip("takes minutes in an interpreter")
    edges = softmax_edges(2, n, n, std=3, seed=n)
    mask = random_mask(2, n, seed=n)
    grad = torch.randn(2, n)
    weights, grads = solve(edges, mask, grad)
    wide = solve(edges.double(), mask, grad.double(), gth_torch)
    torch.testing.assert_close(weights.double(), wide[0], rtol=5e-6, atol=0)
    torch.testing.assert_close(
        (grads * edges).double(), wide[1] * edges, atol=1e-6, rtol=0
    )


HARD_CHAINS = {
    "kmr": kmr_sequential(27, 1 / 3, 1e-2),
    # Parts of 7 words, so that panels of 16 words cut one of them.
    **{
        f"blocks {link}": nearly_decomposable(4, 7, link)
        for link in (1e-6, 1e-13, 1e-20, 1e-25)
    },
    **{f"std {std}": softmax_edges(40, 40, std=std).numpy() for std in (1, 3, 8, 20)},
}


@pytest.mark.parametrize("name", HARD_CHAINS)
def test_panels_solve_hard_chains_as_precisely_as_short_graphs(name, monkeypatch):
    if DEVICE == "interpreter" and name.startswith("std"):
        pytest.skip("takes a second each, and passes for ptx")
    from perron.kernels import gth_triton

    monkeypatch.setattr(gth_triton, "LONG", {32: 4, 64: 4})
    monkeypatch.setattr(gth_triton, "SHORT", {})
    edges = torch.from_numpy(HARD_CHAINS[name]).float()
    rates = edges.double().numpy()
    n = len(edges)
    mask, grad = torch.ones(1, n, dtype=torch.bool), torch.randn(1, n)
    weights, grads = solve(edges[None], mask, grad)
    want = stationary_in_80_digits(rates)
    held = want > torch.finfo(torch.float32).tiny
    assert (abs(weights[0].double().numpy() - want)[held] / want[held]).max() <= 5e-6
    want = score_gradient_in_80_digits(rates, grad[0].double().numpy())
    got = rates * grads[0].double().numpy()  # to log edges
    assert abs(got - want).max() <= 5e-6 * abs(want).max()


@pytest.mark.parametrize(
    ("n", "flaw"), [(5, torch.nan), (5, torch.inf), (5, -1.0), (66, torch.nan)]
)
def test_an_invalid_edge_stays_in_its_own_text_at_both_sizes(n, flaw):
    edges = softmax_edges(2, n, n, std=1)
    edges[0, 1, 2] = flaw
    mask = torch.ones(2, n, dtype=torch.bool)
    mask[:, 4] = False
    weights, grads = solve(edges, mask, torch.randn(2, n))
    assert weights[0][mask[0]].isnan().all()
    assert weights[0, 4] == 0
    assert grads[0].isnan().any()
    assert weights[1].isfinite().all()
    assert grads[1].isfinite().all()


@pytest.mark.parametrize(("n", "forward", "backward"), [(64, 1, 1), (80, 11, 2)])
def test_few_kernels_are_launched(n, forward, backward, monkeypatch):
    from perron.kernels import gth_triton

    names = []
    launch = lambda self, *_, **__: names.append(self)  # noqa: E731
    monkeypatch.setattr(type(gth_triton.solve_short), "run", launch)
    edges, grad = torch.zeros(1, n, n), torch.zeros(1, n)
    mask = torch.ones(1, n, dtype=torch.bool)
    triton_kernels("stationary").forward(edges, mask, True)
    assert len(names) == forward
    triton_kernels("stationary").backward(grad, edges, mask)
    assert len(names) == forward + backward


@pytest.mark.skipif(DEVICE != "interpreter", reason="other devices are not the CPU")
def test_the_interpreter_serves_float32_on_the_cpu_when_selected_by_name():
    x = torch.zeros(1)
    assert selected(x)["stationary"] == "numba"
    with use("triton"):
        assert selected(x)["stationary"] == selected(x)["pair_scores"] == "triton"
        assert selected(x)["column_softmax"] == "torch"
        assert selected(x.double())["stationary"] == "torch"
        assert selected(x.half())["stationary"] == "torch"
    assert select_for_graph("stationary", x).backend == "numba"


@pytest.mark.parametrize("n", [6, 66])
def test_pooling_never_waits_for_the_device(n):
    if n > 6 and DEVICE == "interpreter":
        pytest.skip("takes seconds, and launches are the same as for ptx")
    device = "cuda" if DEVICE == "cuda" else "cpu"
    pool = CentralityPool(5, hidden_dim=3).to(device)
    states = torch.randn(2, n, 5, device=device, requires_grad=True)
    mask = (torch.arange(n) < torch.tensor([[n], [3]])).to(device)
    with use("triton" if DEVICE == "cuda" else TRITON):
        assert select("stationary", states).backend == "triton"
        with forbid_waiting(pool, states, mask):
            pool(states, mask).vector.sum().backward()
    assert states.grad.isfinite().all()


@contextmanager
def forbid_waiting(pool, states, mask):
    """Fail if an operation waits for the device. Before, compile the kernels."""
    if DEVICE != "cuda":
        with NoSynchronization() as mode:
            yield
        assert mode.count > 10
        return
    pool(states, mask).vector.sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    ("operation", "case"),
    [
        ("stationary", 16),
        ("stationary", 32),
        ("stationary", 128),
        ("pair_scores", "tanh"),
        ("pair_scores", "relu"),
    ],
)
def test_the_self_check_accepts_these_kernels(operation, case):
    if DEVICE == "interpreter" and case in (32, 128):
        pytest.skip("takes seconds")
    plain = BACKENDS["torch"].kernels[operation]
    trial = _TRIALS[operation][1]
    kernels = triton_kernels(operation)
    assert not _find_flaw(trial, kernels, plain, torch.device("cpu"), case)
