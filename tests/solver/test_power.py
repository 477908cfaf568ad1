"""Power iteration and its three gradients."""

import numpy as np
import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.graphs import HALVES, random_edges, random_mask, softmax_edges
from perron_tests.reference import kmr_sequential, reference_power_iteration
from torch.autograd import gradcheck, gradgradcheck

from perron import power_iteration, stationary_distribution
from perron.solver import default_tolerance

GRADIENTS = ["unrolled", "truncated", "reverse"]


def second_eigenvalue(edges: torch.Tensor) -> float:
    """Return |λ₂/λ₁| of one matrix."""
    sizes = torch.linalg.eigvals(edges).abs().sort(descending=True).values
    return float(sizes[1] / sizes[0])


def edge_gradient(edges, grad, **settings) -> torch.Tensor:
    leaf = edges.clone().requires_grad_()
    vector = power_iteration(leaf, **settings).vector
    return torch.autograd.grad(vector, leaf, grad)[0]


def exact_gradient(edges, grad) -> torch.Tensor:
    """Return the gradient of the unit eigenvector of a left-stochastic matrix."""
    leaf = edges.clone().requires_grad_()
    weights = stationary_distribution(leaf, norm="l2")
    return torch.autograd.grad(weights, leaf, grad)[0]


def score_gradient(grad: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """Backpropagate to the scores whose softmax the edges are.

    The gradients of different solvers agree only there.
    """
    return edges * (grad - (edges * grad).sum(-2, keepdim=True))


# The algorithm


@pytest.mark.parametrize("stochastic", [True, False])
@pytest.mark.parametrize("tol", [1e-4, 1e-10])
def test_results_and_iterations_agree_with_algorithm_1(tol, stochastic):
    edges = random_edges(6, 5, 5)
    if stochastic:
        edges = edges / edges.sum(-2, keepdim=True)
    result = power_iteration(edges, tol=tol)
    for text in range(6):
        alpha, theta, steps = reference_power_iteration(edges[text].numpy(), tol, 200)
        np.testing.assert_allclose(result.vector[text].numpy(), alpha, rtol=1e-13)
        np.testing.assert_allclose(result.eigenvalue[text].item(), theta, rtol=1e-13)
        assert result.info.iterations[text] == steps


def test_eigenvector_and_eigenvalue_of_any_positive_matrix():
    edges = 3 * random_edges(2, 3, 7, 7)
    result = power_iteration(edges, tol=1e-14)
    values = torch.linalg.eigvals(edges).real.max(-1).values
    torch.testing.assert_close(result.eigenvalue, values)
    image = (edges @ result.vector.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(image, result.eigenvalue.unsqueeze(-1) * result.vector)
    torch.testing.assert_close(
        result.vector.norm(dim=-1), torch.ones(2, 3, dtype=torch.float64)
    )


def test_agrees_with_the_direct_solver_on_stochastic_matrices():
    edges = softmax_edges(9, 12, 12, std=2)
    mask = random_mask(9, 12)
    edges = edges * mask[:, :, None] / (edges * mask[:, :, None]).sum(-2, keepdim=True)
    edges = edges.nan_to_num()
    result = power_iteration(edges, mask, tol=1e-13, norm="sum", max_iter=2000)
    torch.testing.assert_close(result.vector, stationary_distribution(edges, mask))


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e20, 1e35])
def test_the_scale_of_the_matrix_changes_only_the_eigenvalue(scale):
    edges = random_edges(3, 5, 5).float()
    want, got = power_iteration(edges), power_iteration(edges * scale)
    torch.testing.assert_close(got.vector, want.vector)
    torch.testing.assert_close(got.eigenvalue / scale, want.eigenvalue)
    assert got.info.converged.all()


def test_each_text_stops_on_its_own_criterion():
    flat, skewed = softmax_edges(8, 8, std=0.1), softmax_edges(8, 8, std=4)
    batch = torch.stack([flat, skewed, flat, flat, flat])
    result = power_iteration(batch)
    assert result.info.iterations[0] < result.info.iterations[1]
    for text in range(5):
        alone = power_iteration(batch[text])
        assert alone.info.iterations == result.info.iterations[text]
        torch.testing.assert_close(alone.vector, result.vector[text])


def test_finished_texts_are_no_longer_multiplied(monkeypatch):
    from perron.solver import power

    rows = []
    matvec = power._matvec
    monkeypatch.setattr(
        power, "_matvec", lambda A, v: (rows.append(len(A)), matvec(A, v))[1]
    )
    flat, skewed = softmax_edges(8, 8, std=0.1), softmax_edges(8, 8, std=4)
    power_iteration(torch.stack([skewed, *[flat] * 9]))
    assert rows[0] == 10
    assert rows[-2] == 1  # the last product computes the eigenvalues of all texts


def test_the_default_tolerance_depends_on_the_dtype():
    assert default_tolerance(torch.float64) == 1e-10
    assert default_tolerance(torch.float32) == 1e-6
    edges = softmax_edges(50, 20, 20, std=1)
    assert power_iteration(edges).info.converged.all()
    assert power_iteration(edges.float()).info.converged.all()
    strict = power_iteration(edges.float(), tol=1e-10)  # the paper's tolerance
    assert not strict.info.converged.all()
    assert (strict.info.iterations[~strict.info.converged] == 200).all()


def test_converged_does_not_imply_accurate():
    edges = torch.from_numpy(kmr_sequential(3, 1 / 3, 1e-14))
    result = power_iteration(edges, tol=1e-14, norm="sum")
    assert result.info.converged
    assert (result.vector - stationary_distribution(edges)).abs().sum() > 0.5


def test_reaching_max_iter_is_reported():
    edges = softmax_edges(3, 9, 9, std=6)
    info = power_iteration(edges, max_iter=2).info
    assert info.iterations.tolist() == [2, 2, 2]
    assert not info.converged.any()
    assert (info.residual > 1e-10).all()


def test_start_can_be_a_generator_or_a_tensor():
    edges = random_edges(4, 6, 6)
    want = power_iteration(edges, tol=1e-13).vector
    rng = torch.Generator().manual_seed(1)
    torch.testing.assert_close(
        power_iteration(edges, tol=1e-13, start=rng).vector, want
    )
    result = power_iteration(edges, tol=1e-13, start=0.1 + torch.rand(6).double())
    torch.testing.assert_close(result.vector, want)
    result = power_iteration(edges, start=want)
    assert (result.info.iterations == 1).all()


# Gradients


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("norm", ["l2", "sum"])
def test_gradcheck(gradient, norm):
    edges = random_edges(2, 2, 3, 3).requires_grad_()
    mask = random_mask(4, 3).view(2, 2, 3)

    def solve(edges):
        settings = {"gradient": gradient, "norm": norm, "tol": 1e-14}
        return power_iteration(edges, mask, **settings)[:2]

    assert gradcheck(solve, (edges,))


@pytest.mark.parametrize("gradient", ["unrolled", "truncated"])
def test_unrolled_and_truncated_can_be_differentiated_twice(gradient):
    edges = random_edges(3, 3).requires_grad_()
    settings = {"gradient": gradient, "tol": 1e-14, "grad_iter": 60}
    assert gradgradcheck(lambda e: power_iteration(e, **settings).vector, (edges,))


def test_second_derivative_of_reverse_raises_an_error_with_advice():
    edges = random_edges(3, 3).requires_grad_()
    vector = power_iteration(edges).vector
    (grad,) = torch.autograd.grad(vector[0], edges, create_graph=True)
    with pytest.raises(RuntimeError, match='gradient="unrolled"'):
        grad.sum().backward()


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_every_gradient_agrees_with_the_direct_solver(gradient):
    edges = softmax_edges(8, 8, std=1)
    grad = torch.randn(8, dtype=torch.float64)
    got = edge_gradient(edges, grad, gradient=gradient, tol=1e-14)
    want = exact_gradient(edges, grad)
    torch.testing.assert_close(
        score_gradient(got, edges),
        score_gradient(want, edges),
        rtol=1e-8,
        atol=1e-9,
    )


def bytes_saved(**settings) -> int:
    saved = []
    edges = softmax_edges(5, 10, 10, std=1).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (saved.append(t.nbytes), t)[1], lambda t: t
    ):
        power_iteration(edges, tol=0.0, **settings)
    return sum(saved)


def test_memory_of_reverse_does_not_depend_on_max_iter():
    ten = bytes_saved(max_iter=10, gradient="reverse")
    assert ten == bytes_saved(max_iter=200, gradient="reverse")
    assert bytes_saved(max_iter=20, gradient="unrolled") > 2 * ten


def test_memory_of_truncated_depends_only_on_grad_iter():
    settings = {"gradient": "truncated", "grad_iter": 5}
    assert bytes_saved(max_iter=10, **settings) == bytes_saved(max_iter=99, **settings)
    assert bytes_saved(gradient="truncated", grad_iter=9) > bytes_saved(**settings)


# Theorems of the paper


def test_theorem_1_the_gradient_of_the_start_vanishes():
    edges = softmax_edges(10, 10, std=3)
    ratio = second_eigenvalue(edges)
    assert 0.3 < ratio < 0.95
    sizes = []
    for steps in (10, 20, 40):
        start = torch.ones(10, dtype=torch.float64).requires_grad_()
        result = power_iteration(
            edges, tol=0.0, max_iter=steps, gradient="unrolled", start=start
        )
        (grad,) = torch.autograd.grad(result.vector[0], start)
        sizes.append(grad.norm().item())
    # Each step multiplies it by |λ₂/λ₁|, up to the angle between eigenvectors.
    assert sizes[1] / sizes[0] < 5 * ratio**10
    assert sizes[2] / sizes[1] < 5 * ratio**20


def test_theorem_2_the_error_of_reverse_shrinks_with_the_second_eigenvalue():
    edges = softmax_edges(10, 10, std=3)
    ratio = second_eigenvalue(edges)
    exact = stationary_distribution(edges, norm="l2")
    grad = torch.randn(10, dtype=torch.float64)
    want = exact_gradient(edges, grad)
    errors = []
    for terms in (10, 20, 40):
        got = edge_gradient(edges, grad, tol=0.0, max_iter=terms, start=exact)
        errors.append(score_gradient(got - want, edges).norm().item())
    assert 0.1 * ratio**10 < errors[1] / errors[0] < 10 * ratio**10
    assert 0.1 * ratio**20 < errors[2] / errors[1] < 10 * ratio**20


def test_the_error_of_the_gradient_shrinks_with_the_tolerance():
    edges = softmax_edges(10, 10, std=3)
    grad = torch.randn(10, dtype=torch.float64)
    want = exact_gradient(edges, grad)
    for gradient in ("unrolled", "reverse"):
        errors = []
        for tol in (1e-2, 1e-5, 1e-10):
            got = edge_gradient(edges, grad, tol=tol, gradient=gradient)
            errors.append(score_gradient(got - want, edges).norm().item())
        assert errors[0] > 10 * errors[1] > 100 * errors[2]


def test_twenty_truncated_iterations_are_too_few_for_skewed_graphs():
    grad = torch.randn(20, dtype=torch.float64)
    errors = []
    for std in (1, 8):
        edges = softmax_edges(20, 20, std=std)
        settings = {"gradient": "truncated", "tol": 1e-12, "max_iter": 10_000}
        want = exact_gradient(edges, grad)
        error = score_gradient(edge_gradient(edges, grad, **settings) - want, edges)
        errors.append((error.norm() / score_gradient(want, edges).norm()).item())
    assert errors[0] < 1e-9
    assert errors[1] > 1e-3


def test_centrality_is_self_attention_if_all_columns_are_equal():
    scores = torch.randn(3, 7, dtype=torch.float64)
    edges = scores.softmax(-1).unsqueeze(-1).expand(3, 7, 7)
    torch.testing.assert_close(stationary_distribution(edges), scores.softmax(-1))
    result = power_iteration(edges, norm="sum")
    torch.testing.assert_close(result.vector, scores.softmax(-1))
    torch.testing.assert_close(result.eigenvalue, torch.ones(3).double())


# Inputs


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_masked_words_have_no_weight_and_no_influence(gradient):
    edges, mask = random_edges(5, 6, 6), random_mask(5, 6)
    poisoned = edges.masked_fill(~(mask[:, None] & mask[..., None]), torch.nan)
    poisoned.requires_grad_()
    result = power_iteration(poisoned, mask, gradient=gradient)
    (result.vector.square() @ torch.randn(6).double()).sum().backward()
    assert (result.vector[~mask] == 0).all()
    assert (poisoned.grad[0] == 0).all()
    assert poisoned.grad.isfinite().all()
    for text in range(1, 5):
        valid = mask[text].nonzero().squeeze(-1)
        alone = power_iteration(edges[text][valid][:, valid])
        torch.testing.assert_close(result.vector[text][valid], alone.vector)
        torch.testing.assert_close(result.eigenvalue[text], alone.eigenvalue)
    assert result.eigenvalue[0] == 0
    assert result.info.converged[0]


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("invalid", [torch.nan, torch.inf])
def test_an_invalid_edge_does_not_affect_other_texts(gradient, invalid):
    edges = random_edges(4, 5, 5)
    want = power_iteration(edges)
    edges[2, 1, 2] = invalid
    edges.requires_grad_()
    result = power_iteration(edges, gradient=gradient)
    result.vector.square()[:, 0].sum().backward()
    others = torch.tensor([0, 1, 3])
    assert result.vector[2].isnan().any()
    assert not result.info.converged[2]
    assert result.info.iterations[2] < 200
    torch.testing.assert_close(result.vector[others], want.vector[others])
    assert edges.grad[others].isfinite().all()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_half_precision_is_solved_in_float32(gradient, dtype):
    edges = random_edges(3, 6, 6).to(dtype).requires_grad_()
    result = power_iteration(edges, gradient=gradient)
    result.vector[:, 0].sum().backward()
    assert result.vector.dtype == result.eigenvalue.dtype == edges.grad.dtype == dtype
    single = power_iteration(edges.detach().float(), gradient=gradient)
    assert torch.equal(result.vector, single.vector.to(dtype))


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("shape", [(1, 1), (0, 3, 3), (2, 0, 5, 5), (2, 0, 0)])
def test_one_word_and_empty_batches_work(shape, gradient):
    edges = (0.5 + torch.rand(shape)).requires_grad_()
    result = power_iteration(edges, gradient=gradient)
    result.vector.sum().backward()
    assert result.vector.shape == shape[:-1]
    assert result.eigenvalue.shape == shape[:-2]
    assert edges.grad.shape == shape
    if shape == (1, 1):
        assert result.vector.tolist() == [1.0]
        torch.testing.assert_close(result.eigenvalue, edges[0, 0])


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"max_iter": 0}, ["max_iter", 1, 0]),
        ({"grad_iter": 0}, ["grad_iter", 1, 0]),
        ({"tol": -1.0}, ["tol", -1.0]),
        ({"tol": float("nan")}, ["tol", "nan"]),
        ({"start": torch.ones(4)}, ["start", (2, 3), (4,)]),
        ({"start": torch.zeros(3)}, ["start", "positive"]),
        ({"mask": 2 * torch.ones(2, 3)}, ["mask", 2.0]),
    ],
)
def test_invalid_arguments_raise_an_error(settings, parts):
    with pytest.raises(ValueError, match=mentions(*parts)):
        power_iteration(torch.rand(2, 3, 3), **settings)
