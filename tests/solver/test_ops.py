"""The operators of the direct solver, registered with torch."""

import pytest
import torch
from perron_tests.graphs import random_edges, random_mask, softmax_edges
from perron_tests.plain import run_plain

from perron import stationary_distribution
from perron.kernels import Backend, Kernels, select, use
from perron.solver.direct import stationary_backward_op, stationary_op


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operators_pass_opcheck(dtype):
    edges, mask = random_edges(9, 4, 4).to(dtype), random_mask(9, 4)
    for keep_factors in (True, False):
        torch.library.opcheck(stationary_op, (edges, mask, keep_factors))
    torch.library.opcheck(stationary_op, (edges.requires_grad_(), mask, True))
    _, factors = stationary_op(edges.detach(), mask, True)
    grad = torch.rand(9, 4, dtype=dtype)
    torch.library.opcheck(stationary_backward_op, (grad, factors, mask))


def test_compile_and_export_with_dynamic_shapes():
    assert run_plain("compile_solver.py").split() == ["compiled", "exported"]


def test_second_derivative_of_the_operator_raises_an_error():
    edges = softmax_edges(3, 3, std=1).requires_grad_()
    weights, _ = stationary_op(edges[None], torch.ones(1, 3, dtype=torch.bool), True)
    (grad,) = torch.autograd.grad(weights[0, 0], edges, create_graph=True)
    with pytest.raises(RuntimeError, match='gradient="unrolled"'):
        grad.sum().backward()


def test_a_graph_traced_without_a_gradient_can_be_differentiated_later():
    edges, mask = random_edges(20, 30, 30), random_mask(20, 30)
    grads = []
    for keep_factors in (True, False):
        leaf = edges.clone().requires_grad_()
        stationary_op(leaf, mask, keep_factors)[0].square().sum().backward()
        grads.append(leaf.grad)
    assert torch.equal(grads[0], grads[1])


@pytest.mark.parametrize("mode", ["requires_grad=False", "no_grad"])
def test_factors_are_not_kept_without_gradients(mode):
    kept = []
    edges = random_edges(9, 4, 4)
    real = select("stationary", edges)
    spy = Kernels(lambda *a: (kept.append(a[2]), real.forward(*a))[1], real.backward)
    with use(Backend("spy", lambda: {"stationary": spy})):
        if mode == "no_grad":
            with torch.no_grad():
                stationary_distribution(edges.requires_grad_())
        else:
            stationary_distribution(edges)
        stationary_distribution(edges.requires_grad_())
    assert kept == [False, True]
