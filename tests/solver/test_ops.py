import pytest
import torch
from perron_tests.graphs import random_edges, random_mask, softmax_edges
from perron_tests.plain import run_plain

from perron import stationary_distribution
from perron.kernels import Backend, Kernels, select, use
from perron.solver.direct import stationary_backward_op, stationary_op


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_operators_satisfy_torchs_own_checks(dtype):
    edges, mask = random_edges(9, 4, 4).to(dtype), random_mask(9, 4)
    for keep_factors in (True, False):
        torch.library.opcheck(stationary_op, (edges, mask, keep_factors))
    torch.library.opcheck(stationary_op, (edges.requires_grad_(), mask, True))
    _, factors = stationary_op(edges.detach(), mask, True)
    torch.library.opcheck(stationary_backward_op, (torch.rand(9, 4, dtype=dtype), factors, mask))


def test_compiles_whole_and_exports_for_every_shape():
    assert run_plain("compile_solver.py").split() == ["compiled", "exported"]


def test_the_second_derivative_is_refused_in_a_compiled_graph_too():
    edges = softmax_edges(3, 3, std=1).requires_grad_()
    weights, _ = stationary_op(edges[None], torch.ones(1, 3, dtype=torch.bool), True)
    (slope,) = torch.autograd.grad(weights[0, 0], edges, create_graph=True)
    with pytest.raises(RuntimeError, match='gradient="unrolled"'):
        slope.sum().backward()


def test_a_graph_traced_without_a_gradient_can_be_differentiated_later():
    edges, mask = random_edges(20, 30, 30), random_mask(20, 30)
    slopes = []
    for keep_factors in (True, False):
        moved = edges.clone().requires_grad_()
        stationary_op(moved, mask, keep_factors)[0].square().sum().backward()
        slopes.append(moved.grad)
    assert torch.equal(slopes[0], slopes[1])


@pytest.mark.parametrize("how", ["no gradient wanted", "no_grad"])
def test_without_a_gradient_no_factors_are_kept(how):
    kept = []
    edges = random_edges(9, 4, 4)
    right = select("stationary", edges)
    spy = Kernels(lambda *a: (kept.append(a[2]), right.forward(*a))[1], right.backward)
    with use(Backend("spy", lambda: {"stationary": spy})):
        if how == "no_grad":
            with torch.no_grad():
                stationary_distribution(edges.requires_grad_())
        else:
            stationary_distribution(edges)
        stationary_distribution(edges.requires_grad_())
    assert kept == [False, True]
