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
    """|λ₂/λ₁| of one matrix."""
    sizes = torch.linalg.eigvals(edges).abs().sort(descending=True).values
    return float(sizes[1] / sizes[0])


def gradient_to_edges(edges, grad, **settings) -> torch.Tensor:
    moved = edges.clone().requires_grad_()
    (slope,) = torch.autograd.grad(
        power_iteration(moved, **settings).vector, moved, grad
    )
    return slope


def exact_gradient(edges, grad) -> torch.Tensor:
    """Of the unit eigenvector of a left-stochastic matrix."""
    moved = edges.clone().requires_grad_()
    weights = stationary_distribution(moved, norm="l2")
    (slope,) = torch.autograd.grad(weights, moved, grad)
    return slope


def to_scores(slope: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """On to the scores whose softmax the edges are: two gradients agree only there."""
    return edges * (slope - (edges * slope).sum(-2, keepdim=True))


# The algorithm


@pytest.mark.parametrize("stochastic", [True, False])
@pytest.mark.parametrize("tol", [1e-4, 1e-10])
def test_it_is_the_papers_algorithm_to_the_letter(tol, stochastic):
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


def test_it_agrees_with_the_exact_answer_on_stochastic_matrices():
    edges = softmax_edges(9, 12, 12, std=2)
    mask = random_mask(9, 12)
    edges = edges * mask[:, :, None] / (edges * mask[:, :, None]).sum(-2, keepdim=True)
    edges = edges.nan_to_num()
    result = power_iteration(edges, mask, tol=1e-13, norm="sum", max_iter=2000)
    torch.testing.assert_close(result.vector, stationary_distribution(edges, mask))


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e20, 1e35])
def test_the_scale_of_the_matrix_changes_nothing_but_the_eigenvalue(scale):
    edges = random_edges(3, 5, 5).float()
    want, got = power_iteration(edges), power_iteration(edges * scale)
    torch.testing.assert_close(got.vector, want.vector)
    torch.testing.assert_close(got.eigenvalue / scale, want.eigenvalue)
    assert got.info.converged.all()


def test_each_text_stops_when_its_own_rule_is_met():
    flat, lopsided = softmax_edges(8, 8, std=0.1), softmax_edges(8, 8, std=4)
    together = torch.stack([flat, lopsided, flat, flat, flat])
    result = power_iteration(together)
    assert result.info.iterations[0] < result.info.iterations[1]
    for text in range(5):
        alone = power_iteration(together[text])
        assert alone.info.iterations == result.info.iterations[text]
        torch.testing.assert_close(alone.vector, result.vector[text])


def test_finished_texts_are_no_longer_multiplied(monkeypatch):
    from perron.solver import power

    rows = []
    right = power._matvec
    monkeypatch.setattr(
        power, "_matvec", lambda A, v: (rows.append(len(A)), right(A, v))[1]
    )
    flat, lopsided = softmax_edges(8, 8, std=0.1), softmax_edges(8, 8, std=4)
    power_iteration(torch.stack([lopsided, *[flat] * 9]))
    assert rows[0] == 10
    assert rows[-2] == 1  # the very last one is for the eigenvalue of all


def test_the_tolerance_depends_on_the_dtype_and_the_papers_can_be_asked_for():
    assert default_tolerance(torch.float64) == 1e-10
    assert default_tolerance(torch.float32) == 1e-6
    edges = softmax_edges(50, 20, 20, std=1)
    assert power_iteration(edges).info.converged.all()
    assert power_iteration(edges.float()).info.converged.all()
    papers = power_iteration(edges.float(), tol=1e-10)
    assert not papers.info.converged.all()
    assert (papers.info.iterations[~papers.info.converged] == 200).all()


def test_converged_does_not_mean_right():
    edges = torch.from_numpy(kmr_sequential(3, 1 / 3, 1e-14))
    result = power_iteration(edges, tol=1e-14, norm="sum")
    assert result.info.converged
    assert (result.vector - stationary_distribution(edges)).abs().sum() > 0.5


def test_giving_up_is_reported():
    edges = softmax_edges(3, 9, 9, std=6)
    info = power_iteration(edges, max_iter=2).info
    assert info.iterations.tolist() == [2, 2, 2]
    assert not info.converged.any()
    assert (info.residual > 1e-10).all()


def test_start_may_be_random_or_given():
    edges = random_edges(4, 6, 6)
    want = power_iteration(edges, tol=1e-13).vector
    rng = torch.Generator().manual_seed(1)
    torch.testing.assert_close(
        power_iteration(edges, tol=1e-13, start=rng).vector, want
    )
    given = power_iteration(edges, tol=1e-13, start=0.1 + torch.rand(6).double())
    torch.testing.assert_close(given.vector, want)
    close = power_iteration(edges, start=want)
    assert (close.info.iterations == 1).all()


# The gradients


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("norm", ["l2", "sum"])
def test_gradcheck(gradient, norm):
    edges = random_edges(2, 2, 3, 3).requires_grad_()
    mask = random_mask(4, 3).view(2, 2, 3)

    def both(edges):
        settings = {"gradient": gradient, "norm": norm, "tol": 1e-14}
        return power_iteration(edges, mask, **settings)[:2]

    assert gradcheck(both, (edges,))


@pytest.mark.parametrize("gradient", ["unrolled", "truncated"])
def test_unrolled_and_truncated_can_be_differentiated_twice(gradient):
    edges = random_edges(3, 3).requires_grad_()
    settings = {"gradient": gradient, "tol": 1e-14, "grad_iter": 60}
    assert gradgradcheck(lambda e: power_iteration(e, **settings).vector, (edges,))


def test_reverse_refuses_the_second_derivative_with_the_remedy():
    edges = random_edges(3, 3).requires_grad_()
    vector = power_iteration(edges).vector
    (slope,) = torch.autograd.grad(vector[0], edges, create_graph=True)
    with pytest.raises(RuntimeError, match='gradient="unrolled"'):
        slope.sum().backward()


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_every_gradient_is_that_of_the_exact_solver(gradient):
    edges = softmax_edges(8, 8, std=1)
    grad = torch.randn(8, dtype=torch.float64)
    slope = gradient_to_edges(edges, grad, gradient=gradient, tol=1e-14)
    want = exact_gradient(edges, grad)
    torch.testing.assert_close(
        to_scores(slope, edges), to_scores(want, edges), rtol=1e-8, atol=1e-9
    )


def bytes_saved(**settings) -> int:
    saved = []
    edges = softmax_edges(5, 10, 10, std=1).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (saved.append(t.nbytes), t)[1], lambda t: t
    ):
        power_iteration(edges, tol=0.0, **settings)
    return sum(saved)


def test_reverse_saves_the_same_for_10_and_for_200_steps():
    ten = bytes_saved(max_iter=10, gradient="reverse")
    assert ten == bytes_saved(max_iter=200, gradient="reverse")
    assert bytes_saved(max_iter=20, gradient="unrolled") > 2 * ten


def test_truncated_saves_by_its_recorded_steps_alone():
    settings = {"gradient": "truncated", "grad_iter": 5}
    assert bytes_saved(max_iter=10, **settings) == bytes_saved(max_iter=99, **settings)
    assert bytes_saved(gradient="truncated", grad_iter=9) > bytes_saved(**settings)


# The theorems


def test_theorem_1_the_gradient_to_the_start_vanishes():
    edges = softmax_edges(10, 10, std=3)
    ratio = second_eigenvalue(edges)
    assert 0.3 < ratio < 0.95
    sizes = []
    for steps in (10, 20, 40):
        start = torch.ones(10, dtype=torch.float64).requires_grad_()
        result = power_iteration(
            edges, tol=0.0, max_iter=steps, gradient="unrolled", start=start
        )
        (slope,) = torch.autograd.grad(result.vector[0], start)
        sizes.append(slope.norm().item())
    # Each further step multiplies it by |λ₂/λ₁|, up to the angle between eigenvectors.
    assert sizes[1] / sizes[0] < 5 * ratio**10
    assert sizes[2] / sizes[1] < 5 * ratio**20


def test_theorem_2_the_error_of_the_reverse_sum_shrinks_as_the_second_eigenvalue():
    edges = softmax_edges(10, 10, std=3)
    ratio = second_eigenvalue(edges)
    exact = stationary_distribution(edges, norm="l2")
    grad = torch.randn(10, dtype=torch.float64)
    want = exact_gradient(edges, grad)
    errors = []
    for terms in (10, 20, 40):
        slope = gradient_to_edges(edges, grad, tol=0.0, max_iter=terms, start=exact)
        errors.append(to_scores(slope - want, edges).norm().item())
    assert 0.1 * ratio**10 < errors[1] / errors[0] < 10 * ratio**10
    assert 0.1 * ratio**20 < errors[2] / errors[1] < 10 * ratio**20


def test_the_gradients_error_shrinks_with_the_tolerance():
    edges = softmax_edges(10, 10, std=3)
    grad = torch.randn(10, dtype=torch.float64)
    want = exact_gradient(edges, grad)
    for gradient in ("unrolled", "reverse"):
        errors = []
        for tol in (1e-2, 1e-5, 1e-10):
            slope = gradient_to_edges(edges, grad, tol=tol, gradient=gradient)
            errors.append(to_scores(slope - want, edges).norm().item())
        assert errors[0] > 10 * errors[1] > 100 * errors[2]


def test_twenty_recorded_steps_are_too_few_for_lopsided_graphs():
    grad = torch.randn(20, dtype=torch.float64)
    errors = []
    for std in (1, 8):
        edges = softmax_edges(20, 20, std=std)
        settings = {"gradient": "truncated", "tol": 1e-12, "max_iter": 10_000}
        want = exact_gradient(edges, grad)
        error = to_scores(gradient_to_edges(edges, grad, **settings) - want, edges)
        errors.append((error.norm() / to_scores(want, edges).norm()).item())
    assert errors[0] < 1e-9
    assert errors[1] > 1e-3


def test_centrality_collapses_to_self_attention_when_every_word_asks_the_same():
    scores = torch.randn(3, 7, dtype=torch.float64)
    edges = scores.softmax(-1).unsqueeze(-1).expand(3, 7, 7)
    torch.testing.assert_close(stationary_distribution(edges), scores.softmax(-1))
    result = power_iteration(edges, norm="sum")
    torch.testing.assert_close(result.vector, scores.softmax(-1))
    torch.testing.assert_close(result.eigenvalue, torch.ones(3).double())


# What comes in


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_masked_words_weigh_nothing_and_influence_nothing(gradient):
    edges, mask = random_edges(5, 6, 6), random_mask(5, 6)
    poisoned = edges.masked_fill(~(mask[:, None] & mask[..., None]), torch.nan)
    poisoned.requires_grad_()
    result = power_iteration(poisoned, mask, gradient=gradient)
    (result.vector.square() @ torch.randn(6).double()).sum().backward()
    assert (result.vector[~mask] == 0).all()
    assert (poisoned.grad[0] == 0).all()
    assert poisoned.grad.isfinite().all()
    for text in range(1, 5):
        used = mask[text].nonzero().squeeze(-1)
        alone = power_iteration(edges[text][used][:, used])
        torch.testing.assert_close(result.vector[text][used], alone.vector)
        torch.testing.assert_close(result.eigenvalue[text], alone.eigenvalue)
    assert result.eigenvalue[0] == 0
    assert result.info.converged[0]


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("flaw", [torch.nan, torch.inf])
def test_a_flaw_in_one_text_stays_in_that_text(gradient, flaw):
    edges = random_edges(4, 5, 5)
    whole = power_iteration(edges)
    edges[2, 1, 2] = flaw
    edges.requires_grad_()
    result = power_iteration(edges, gradient=gradient)
    result.vector.square()[:, 0].sum().backward()
    others = torch.tensor([0, 1, 3])
    assert result.vector[2].isnan().any()
    assert not result.info.converged[2]
    assert result.info.iterations[2] < 200
    torch.testing.assert_close(result.vector[others], whole.vector[others])
    assert edges.grad[others].isfinite().all()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_half_precision_comes_in_and_goes_out(gradient, dtype):
    edges = random_edges(3, 6, 6).to(dtype).requires_grad_()
    result = power_iteration(edges, gradient=gradient)
    result.vector[:, 0].sum().backward()
    assert result.vector.dtype == result.eigenvalue.dtype == edges.grad.dtype == dtype
    inside = power_iteration(edges.detach().float(), gradient=gradient)
    assert torch.equal(result.vector, inside.vector.to(dtype))


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
def test_a_wrong_argument_is_refused_with_what_came(settings, parts):
    with pytest.raises(ValueError, match=mentions(*parts)):
        power_iteration(torch.rand(2, 3, 3), **settings)
