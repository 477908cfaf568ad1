"""The direct solver against hand calculations, references and invariants."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perron_tests.errors import mentions
from perron_tests.graphs import (
    DTYPE,
    HALVES,
    random_edges,
    random_mask,
    softmax_edges,
)
from perron_tests.reference import (
    gradient_by_differences,
    kmr_sequential,
    nearly_decomposable,
    score_gradient_in_80_digits,
    stationary_by_eig,
    stationary_in_80_digits,
)
from perron_tests.triton import DEVICE, IS_SLOW
from quantecon.markov.gth_solve import gth_solve
from torch.autograd import gradcheck

from perron import stationary_distribution
from perron.kernels import Backend, Kernels, select, use

quick = settings(
    deadline=None,
    max_examples=3 if IS_SLOW else 40,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

BOUND = {torch.float64: 1e-12, torch.float32: 5e-6}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-6}[DTYPE]


def weigh(edges: torch.Tensor, **settings) -> torch.Tensor:
    """Solve copies of a graph: on the CPU, a group of eight and a single one."""
    count = 2 if IS_SLOW else 9
    copies = stationary_distribution(edges.expand(count, *edges.shape), **settings)
    torch.testing.assert_close(copies[-1], copies[0])
    return copies[0]


def worst_relative_error(got: torch.Tensor, want: np.ndarray) -> float:
    """Return the largest relative error of the entries in the normal range."""
    normal = want > torch.finfo(got.dtype).tiny
    return float((abs(got.double().numpy() - want)[normal] / want[normal]).max())


# Examples by hand


def test_two_nodes_by_hand(kernel):
    a, b = 0.3, 0.7  # 0 -> 1 at rate a, 1 -> 0 at rate b
    edges = torch.tensor([[0.0, b], [a, 0.0]], dtype=DTYPE)
    want = torch.tensor([b, a], dtype=DTYPE) / (a + b)
    torch.testing.assert_close(weigh(edges), want)


def test_three_nodes_in_a_ring_by_hand(kernel):
    # 0 -> 1 -> 2 -> 0 at rates 1, 2, 4: the time spent is inverse to the rate.
    edges = torch.tensor([[0.0, 0, 4], [1, 0, 0], [0, 2, 0]], dtype=DTYPE)
    want = torch.tensor([4.0, 2, 1], dtype=DTYPE) / 7
    torch.testing.assert_close(weigh(edges), want)


def test_one_word_has_all_the_weight_and_no_gradient(kernel):
    edges = torch.tensor([[[0.3]]], requires_grad=True)
    weights = stationary_distribution(edges)
    weights.sum().backward()
    assert weights.tolist() == [[1.0]]
    assert edges.grad.tolist() == [[[0.0]]]


def test_l2_has_unit_length_and_the_same_direction(kernel):
    edges = random_edges(3, 5, 5)
    weights = stationary_distribution(edges, norm="l2")
    torch.testing.assert_close(weights.norm(dim=-1), torch.ones(3, dtype=DTYPE))
    torch.testing.assert_close(
        weights / weights.sum(-1, keepdim=True), stationary_distribution(edges)
    )


# References


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_matches_dense_eigenvectors(kernel, n):
    edges = random_edges(3, n, n)
    want = np.stack([stationary_by_eig(e) for e in edges.numpy()])
    np.testing.assert_allclose(
        stationary_distribution(edges).numpy(), want, atol=TOLERANCE
    )


HARD_CHAINS = {
    "kmr 27": kmr_sequential(27, 1 / 3, 1e-2),
    "kmr 3": kmr_sequential(3, 1 / 3, 1e-14),
    "blocks 1e-6": nearly_decomposable(3, 5, 1e-6),
    "blocks 1e-13": nearly_decomposable(4, 4, 1e-13),
    "blocks 1e-20": nearly_decomposable(3, 4, 1e-20),
    "blocks 1e-25": nearly_decomposable(3, 4, 1e-25),
    **{
        f"std {std} n {n}": softmax_edges(n, n, std=std).numpy()
        for std in (1, 3, 8, 20)
        for n in (2, 7, 24)
    },
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", HARD_CHAINS)
def test_hard_chains_agree_with_80_digit_arithmetic(kernel, name, dtype):
    edges = torch.from_numpy(HARD_CHAINS[name]).to(dtype)
    want = stationary_in_80_digits(edges.double().numpy())
    assert worst_relative_error(weigh(edges), want) <= BOUND[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("std", [1, 3, 8, 20])
@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 65, 400])
def test_every_entry_agrees_with_quantecon(kernel, n, std, dtype):
    edges = softmax_edges(n, n, std=std, seed=n).to(dtype)
    want = gth_solve(edges.double().numpy().T)
    assert worst_relative_error(weigh(edges), want) <= BOUND[dtype]


def test_gradient_agrees_with_finite_differences_of_quantecon(kernel):
    edges = softmax_edges(6, 6, std=1)
    grad = torch.randn(6, dtype=torch.float64)
    want = gradient_by_differences(
        lambda A: gth_solve(A.T), edges.numpy(), grad.numpy()
    )
    edges.requires_grad_()
    weigh(edges).backward(grad)
    np.testing.assert_allclose(edges.grad.numpy(), want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", HARD_CHAINS)
def test_gradients_of_hard_chains_agree_with_80_digit_arithmetic(kernel, name, dtype):
    edges = torch.from_numpy(HARD_CHAINS[name]).to(dtype)
    grad = torch.randn(len(edges), dtype=dtype)
    want = score_gradient_in_80_digits(edges.double().numpy(), grad.double().numpy())
    edges.requires_grad_()
    weigh(edges).backward(grad)
    got = (edges.double() * edges.grad.double()).detach().numpy()  # of log edges
    # Even in nearly disconnected graphs, the gradient of the logarithms is of the order
    # of the incoming one, and each entry is accurate on that scale. u has 32 digits, of
    # which an edge as weak as 1e-25 takes 25.
    bound = max(BOUND[dtype], 1e-7 if name == "blocks 1e-25" else 0)
    assert abs(got - want).max() <= bound * abs(want).max()


# Invariants


@quick
@given(n=st.integers(1, 12), seed=st.integers(0, 9999))
def test_permuting_the_nodes_permutes_the_weights(kernel, n, seed):
    edges = random_edges(n, n, seed=seed)
    x = weigh(edges)
    assert (x > 0).all()
    torch.testing.assert_close(x.sum().item(), 1.0)
    perm = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(weigh(edges[perm][:, perm]), x[perm])


@quick
@given(n=st.integers(2, 12), seed=st.integers(0, 9999), factor=st.floats(1e-6, 1e6))
def test_weights_are_inversely_proportional_to_exit_rates(kernel, n, seed, factor):
    edges = random_edges(n, n, seed=seed)
    faster = edges.clone()
    faster[:, 0] *= factor
    want = weigh(edges)
    want[0] /= factor
    torch.testing.assert_close(weigh(faster), want / want.sum())


@quick
@given(n=st.integers(1, 9), seed=st.integers(0, 9999))
def test_the_diagonal_is_ignored(kernel, n, seed):
    edges = random_edges(n, n, seed=seed)
    other = edges.clone().fill_diagonal_(-torch.inf)
    assert torch.equal(weigh(edges), weigh(other))


@quick
@given(seed=st.integers(0, 9999), exponent=st.integers(-120, 120))
def test_the_scale_of_the_rates_does_not_matter(kernel, seed, exponent):
    edges = random_edges(9, 5, 5, seed=seed).float()
    assert torch.equal(
        stationary_distribution(torch.ldexp(edges, torch.tensor(exponent))),
        stationary_distribution(edges),
    )


@pytest.mark.parametrize("fraction", [-0.9, -0.7, 0.7, 0.9])
def test_the_scale_of_the_rates_scales_the_gradient(kernel, fraction):
    exponent = int(fraction * {torch.float64: 1000, torch.float32: 120}[DTYPE])
    edges = random_edges(9, 5, 5)
    grads = []
    for shift in (0, exponent):
        leaf = torch.ldexp(edges, torch.tensor(shift)).requires_grad_()
        stationary_distribution(leaf)[:, 0].sum().backward()
        grads.append(torch.ldexp(leaf.grad, torch.tensor(shift)))
    torch.testing.assert_close(grads[1], grads[0])


def test_rates_whose_sum_overflows_work(kernel):
    edges = torch.full((9, 4, 4), torch.finfo(DTYPE).max, dtype=DTYPE)
    torch.testing.assert_close(
        stationary_distribution(edges), torch.full((9, 4), 0.25, dtype=DTYPE)
    )


@quick
@given(n=st.integers(2, 9), seed=st.integers(0, 9999))
def test_masked_words_have_no_weight_and_no_influence(kernel, n, seed):
    edges = random_edges(4, n, n, seed=seed)
    mask = random_mask(4, n, seed=seed)
    poisoned = edges.masked_fill(~(mask[:, None] & mask[..., None]), torch.nan)
    poisoned.requires_grad_()
    weights = stationary_distribution(poisoned, mask)
    weights.square().sum().backward()
    assert (weights[~mask] == 0).all()
    for text in range(4):
        valid = mask[text].nonzero().squeeze(-1)
        alone = edges[text][valid][:, valid].clone().requires_grad_()
        weights_alone = weigh(alone)
        weights_alone.square().sum().backward()
        torch.testing.assert_close(weights[text][valid], weights_alone)
        grad = poisoned.grad[text]
        torch.testing.assert_close(grad[valid][:, valid], alone.grad)
        assert (grad[~mask[text]] == 0).all()
        assert (grad[:, ~mask[text]] == 0).all()


# Gradients


@pytest.mark.skipif(bool(DEVICE), reason="gradcheck needs float64")
def test_gradcheck(kernel):
    edges = random_edges(2, 9, 4, 4).requires_grad_()
    mask = random_mask(18, 4).view(2, 9, 4)
    assert gradcheck(stationary_distribution, (edges,))
    assert gradcheck(lambda e: stationary_distribution(e, mask, norm="l2"), (edges,))


@pytest.mark.skipif(bool(DEVICE), reason="gradcheck needs float64")
def test_gradcheck_detects_a_wrong_backward(kernel):
    edges = random_edges(3, 3).requires_grad_()
    real = select("stationary", edges)
    wrong = Kernels(real.forward, lambda *a: 1.01 * real.backward(*a))
    with use(Backend("wrong", lambda: {"stationary": wrong})):
        assert not gradcheck(stationary_distribution, (edges,), raise_exception=False)


def test_second_derivative_raises_an_error_with_advice(kernel):
    edges = random_edges(3, 3).requires_grad_()
    weights = stationary_distribution(edges)
    (grad,) = torch.autograd.grad(weights[0], edges, create_graph=True)
    with pytest.raises(RuntimeError, match='gradient="unrolled"'):
        grad.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("std", [100, 1e4])
def test_gradients_of_large_scores_are_finite(kernel, std, dtype):
    scores = (std * torch.randn(12, 9, 9)).to(dtype).requires_grad_()
    weights = stationary_distribution(scores.softmax(-2))
    torch.testing.assert_close(weights.sum(-1), torch.ones(12, dtype=dtype))
    (weights @ torch.randn(9, dtype=dtype)).sum().backward()
    assert scores.grad.isfinite().all()
    assert scores.grad.abs().max() < 10


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("gap", [0, 30, 60, 90, 120, 200, 1000])
def test_gradients_do_not_depend_on_the_batch(kernel, gap, dtype):
    block = torch.arange(12) // 4
    scores = torch.randn(8, 12, 12) - gap * (block[:, None] != block)
    grad = torch.randn(12, dtype=dtype)
    grads = []
    for texts in (3 if IS_SLOW else 8, 1):
        leaf = scores[:texts].to(dtype).requires_grad_()
        stationary_distribution(leaf.softmax(-2)).backward(grad.expand(texts, 12))
        grads.append(leaf.grad[0])
    assert grads[0].abs().max() < 5
    if gap <= 60:  # beyond, the levels of the blocks cannot be resolved
        torch.testing.assert_close(grads[0], grads[1], rtol=1e-3, atol=1e-5)


# Inputs


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_is_solved_in_float32(kernel, dtype):
    edges = random_edges(9, 6, 6).to(dtype).requires_grad_()
    weights = stationary_distribution(edges)
    weights.square().sum().backward()
    assert weights.dtype == edges.grad.dtype == dtype
    single = stationary_distribution(edges.detach().float())
    assert torch.equal(weights, single.to(dtype))


@pytest.mark.parametrize("invalid", [torch.nan, torch.inf, -1.0])
def test_an_invalid_rate_does_not_affect_other_texts(kernel, invalid):
    edges = random_edges(10, 5, 5)
    want = stationary_distribution(edges)
    edges[3, 1, 2] = invalid
    edges.requires_grad_()
    weights = stationary_distribution(edges)
    weights.square().sum().backward()
    assert weights[3].isnan().all()
    assert edges.grad[3].isnan().any()
    others = torch.arange(10) != 3
    assert torch.equal(weights[others], want[others])
    assert edges.grad[others].isfinite().all()


def test_a_text_with_no_words_has_zero_weights_and_gradients(kernel):
    edges = random_edges(9, 4, 4).requires_grad_()
    mask = torch.ones(9, 4, dtype=torch.bool)
    mask[5] = False
    weights = stationary_distribution(edges, mask)
    weights.square().sum().backward()
    assert (weights[5] == 0).all()
    assert (edges.grad[5] == 0).all()


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 5, 5), (2, 0, 0), (0, 0, 0)])
def test_an_empty_batch_works(kernel, shape):
    edges = torch.rand(shape, requires_grad=True)
    weights = stationary_distribution(edges)
    weights.sum().backward()
    assert weights.shape == shape[:-1]
    assert edges.grad.shape == shape


def test_non_contiguous_and_expanded_inputs_work(kernel):
    edges = random_edges(2, 4, 4, 9)
    permuted = edges.permute(0, 3, 2, 1)  # (2, 9, 4, 4)
    assert torch.equal(
        stationary_distribution(permuted),
        stationary_distribution(permuted.contiguous()),
    )
    expanded = edges[0, :, :, 0].expand(10, 4, 4)
    torch.testing.assert_close(
        stationary_distribution(expanded),
        stationary_distribution(expanded.contiguous()),
    )
    mask = torch.tensor([True, False, True, True])
    assert torch.equal(
        stationary_distribution(permuted, mask),
        stationary_distribution(permuted, mask.expand(2, 9, 4).contiguous()),
    )


def test_zero_rates_with_a_unique_solution_give_it(kernel):
    absorbing = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0, 0.5, 1]])
    torch.testing.assert_close(weigh(absorbing), torch.tensor([0.0, 0, 1]))
    reversed_order = absorbing.flip(0, 1)
    torch.testing.assert_close(weigh(reversed_order), torch.tensor([1.0, 0, 0]))


def test_zero_rates_with_many_solutions_give_one_of_them(kernel):
    edges = torch.block_diag(
        torch.eye(1), *[torch.tensor([[0.4, 0.3], [0.6, 0.7]])] * 2
    )
    weights = weigh(edges)
    torch.testing.assert_close(edges @ weights, weights)
    torch.testing.assert_close(weights.sum(), torch.tensor(1.0))


def test_inputs_are_not_modified(kernel):
    edges, mask = random_edges(9, 5, 5), random_mask(9, 5)
    before = edges.clone(), mask.clone()
    stationary_distribution(edges.requires_grad_(), mask).sum().backward()
    assert torch.equal(edges, before[0])
    assert torch.equal(mask, before[1])


@pytest.mark.parametrize(
    ("edges", "mask", "parts"),
    [
        (torch.rand(3), None, ["edges", "shape", (3,)]),
        (torch.rand(3, 4), None, ["edges", "shape", (3, 4)]),
        (torch.ones(3, 3).long(), None, ["edges", "floating point", "torch.int64"]),
        (torch.rand(3, 3), torch.full((3,), 0.5), ["mask", 0.5, "torch.float32"]),
        (
            torch.rand(2, 3, 3),
            torch.ones(2, 4, dtype=torch.bool),
            ["mask", (2, 3), (2, 4)],
        ),
        (
            torch.rand(2, 3, 3),
            torch.ones(2, 1, dtype=torch.bool),
            ["mask", (2, 3), (2, 1)],
        ),
    ],
)
def test_invalid_arguments_raise_an_error(edges, mask, parts):
    with pytest.raises(ValueError, match=mentions(*parts)):
        stationary_distribution(edges, mask)
