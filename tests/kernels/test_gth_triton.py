"""The solver's Triton kernels, run by Triton's interpreter on CPU tensors.

The interpreter has to be selected before Triton is imported, so these tests run in a
separate process, together with the solver's behavior tests: without TRITON_INTERPRET=1,
the first test starts that process.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from perron_tests import environment
from perron_tests.graphs import IS_INTERPRETED, random_mask, softmax_edges
from perron_tests.reference import (
    kmr_sequential,
    nearly_decomposable,
    score_gradient_in_80_digits,
    stationary_in_80_digits,
)
from perron_tests.synchronization import NoSynchronization

from perron import CentralityPool
from perron.kernels import gth_torch, select, select_for_graph, selected, use

pytest.importorskip("triton", reason="Triton is not installed (it needs Linux)")
interpreted = pytest.mark.skipif(not IS_INTERPRETED, reason="runs in its own process")

SOLVER_TESTS = Path(__file__).parents[1] / "solver/test_stationary.py"


@pytest.mark.skipif(IS_INTERPRETED, reason="this is that process")
@pytest.mark.parametrize("path", [Path(__file__), SOLVER_TESTS], ids=lambda p: p.stem)
def test_kernels_pass_their_tests_in_the_interpreter(path):
    # Without jaxtyping, whose wrappers Triton cannot interpret. NumPy, which the
    # interpreter computes with, warns about invalid values; GPUs do not.
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "-W",
            "ignore::RuntimeWarning",
            path,
        ],
        env=environment(TRITON_INTERPRET="1"),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    print(run.stdout.splitlines()[-1])


@pytest.fixture(autouse=True)
def _uninitialized_memory_is_nan():
    torch.use_deterministic_algorithms(IS_INTERPRETED)
    yield
    torch.use_deterministic_algorithms(False)


def solve(kernels, edges, mask, grad):
    weights, factors, plan = kernels.forward(edges, mask, True)
    return weights, kernels.backward(grad, factors, mask, plan)


@interpreted
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 32, 33, 64, 65, 130])
def test_sizes_around_those_of_blocks_give_the_result_of_torch(n):
    from perron.kernels import gth_triton

    edges = softmax_edges(2, n, n, std=3, seed=n)
    mask = random_mask(2, n, seed=n)
    grad = torch.randn(2, n)
    weights, grads = solve(gth_triton, edges, mask, grad)
    wide = solve(gth_torch, edges.double(), mask, grad.double())
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


@interpreted
@pytest.mark.parametrize("name", HARD_CHAINS)
def test_panels_solve_hard_chains_as_precisely_as_short_graphs(name, monkeypatch):
    from perron.kernels import gth_triton

    monkeypatch.setattr(gth_triton, "LONG", {32: 4, 64: 4})
    monkeypatch.setattr(gth_triton, "SHORT", {})
    edges = torch.from_numpy(HARD_CHAINS[name]).float()
    rates = edges.double().numpy()
    n = len(edges)
    mask, grad = torch.ones(1, n, dtype=torch.bool), torch.randn(1, n)
    weights, grads = solve(gth_triton, edges[None], mask, grad)
    want = stationary_in_80_digits(rates)
    held = want > torch.finfo(torch.float32).tiny
    assert (abs(weights[0].double().numpy() - want)[held] / want[held]).max() <= 5e-6
    want = score_gradient_in_80_digits(rates, grad[0].double().numpy())
    got = rates * grads[0].double().numpy()  # to log edges
    assert abs(got - want).max() <= 5e-6 * abs(want).max()


@interpreted
@pytest.mark.parametrize(
    ("n", "flaw"), [(5, torch.nan), (5, torch.inf), (5, -1.0), (66, torch.nan)]
)
def test_an_invalid_edge_stays_in_its_own_text_at_both_sizes(n, flaw):
    from perron.kernels import gth_triton

    edges = softmax_edges(2, n, n, std=1)
    edges[0, 1, 2] = flaw
    mask = torch.ones(2, n, dtype=torch.bool)
    mask[:, 4] = False
    weights, grads = solve(gth_triton, edges, mask, torch.randn(2, n))
    assert weights[0][mask[0]].isnan().all()
    assert weights[0, 4] == 0
    assert grads[0].isnan().any()
    assert weights[1].isfinite().all()
    assert grads[1].isfinite().all()


@interpreted
@pytest.mark.parametrize(("n", "forward", "backward"), [(64, 1, 1), (80, 11, 2)])
def test_few_kernels_are_launched(n, forward, backward, monkeypatch):
    from triton.runtime.interpreter import InterpretedFunction

    from perron.kernels import gth_triton

    names = []
    monkeypatch.setattr(
        InterpretedFunction, "run", lambda self, *_, **__: names.append(self.fn)
    )
    edges, grad = torch.zeros(1, n, n), torch.zeros(1, n)
    mask = torch.ones(1, n, dtype=torch.bool)
    gth_triton.forward(edges, mask, True)
    assert len(names) == forward
    gth_triton.backward(grad, edges, mask)
    assert len(names) == forward + backward


@interpreted
def test_the_interpreter_serves_float32_on_the_cpu_when_selected_by_name():
    x = torch.zeros(1)
    assert selected(x)["stationary"] == "numba"
    with use("triton"):
        assert selected(x)["stationary"] == selected(x)["pair_scores"] == "triton"
        assert selected(x)["column_softmax"] == "torch"
        assert selected(x.double())["stationary"] == "torch"
        assert selected(x.half())["stationary"] == "torch"
    assert select_for_graph("stationary", x).backend == "numba"


@interpreted
@pytest.mark.parametrize("n", [6, 66])
def test_pooling_never_waits_for_the_device(n):
    pool = CentralityPool(5, hidden_dim=3)
    states = torch.randn(2, n, 5, requires_grad=True)
    mask = torch.arange(n) < torch.tensor([[n], [3]])
    with use("triton"):
        assert select("stationary", states).backend == "triton"
        with NoSynchronization() as mode:
            pool(states, mask).vector.sum().backward()
    assert mode.count > 10
    assert states.grad.isfinite().all()


@interpreted
def test_the_self_check_accepts_these_kernels():
    from perron.kernels.dispatch import BACKENDS
    from perron.kernels.self_check import _TRIALS, _find_flaw

    for operation, case in [
        ("stationary", 16),
        ("stationary", 32),
        ("pair_scores", "tanh"),
        ("pair_scores", "relu"),
    ]:
        kernels, plain = (
            BACKENDS[name].kernels[operation] for name in ("triton", "torch")
        )
        trial = _TRIALS[operation][1]
        flaw = _find_flaw(trial, kernels, plain, torch.device("cpu"), case)
        assert not flaw, (operation, case)
