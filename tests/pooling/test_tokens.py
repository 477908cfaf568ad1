"""Words side by side and padded words do the same, twice differentiable."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from perron.kernels import use
from perron.pooling.tokens import PaddedTokens, RaggedTokens, pack

MASKS = {
    "holes": torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]]),
    "full": torch.ones(3, 4),
    "none": torch.zeros(2, 4),
}

METHODS = {
    "softmax": lambda words: words.to_padded(words.softmax(words.states)),
    "logsumexp": lambda words: words.logsumexp(words.states)[words.mask.any(1)],
    "sum": lambda words: words.sum(words.states.square()),
    "max": lambda words: words.max(),
    "weighted_sum": lambda words: words.weighted_sum(words.states[..., :2].sin()),
    "weigh values": lambda words: words.weighted_sum(words.states, words.states.cos()),
    "broadcast": lambda words: words.to_padded(
        words.states * words.broadcast(words.sum(words.states))
    ),
    "mean_weights": lambda words: words.weighted_sum(words.mean_weights()),
    "to_ragged": lambda words: words.to_padded(
        words.to_ragged(words.to_padded(words.states))
    ),
}


@pytest.fixture(params=MASKS)
def mask(request):
    return MASKS[request.param].bool()


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


def random_states(mask):
    rng = torch.Generator().manual_seed(0)
    return torch.randn(*mask.shape, 3, generator=rng, dtype=torch.float64)


def packed_result(method, mask):
    return lambda states: method(pack(states, mask))


def padded_result(method, mask):
    absent = ~mask.unsqueeze(-1)
    return lambda states: method(PaddedTokens(states.masked_fill(absent, 0), mask))


def test_both_forms_give_the_same_with_the_same_slope(mask, method):
    states = random_states(mask).requires_grad_()
    found = []
    for form in (packed_result, padded_result):
        value = form(method, mask)(states)
        grad = torch.linspace(-1, 2, value.numel(), dtype=torch.float64)
        found.append((value, *torch.autograd.grad(value, states, grad.view_as(value))))
    torch.testing.assert_close(*found)


def test_first_and_second_derivatives_of_packed_words(mask, method):
    states = random_states(mask).requires_grad_()
    assert gradcheck(packed_result(method, mask), (states,))
    assert gradgradcheck(packed_result(method, mask), (states,))


def test_a_full_batch_is_not_copied():
    states = torch.randn(3, 4, 2)
    words = pack(states, torch.ones(3, 4, dtype=torch.bool))
    assert words.states.data_ptr() == states.data_ptr()


def test_without_compiled_kernels_the_sums_are_the_same(mask, method):
    """Other devices have plain torch instead: here it runs on the CPU."""
    states = random_states(mask).requires_grad_()
    found = []
    for kernels in ("numba", "torch"):
        with use(kernels):
            value = packed_result(method, mask)(states)
        grad = torch.linspace(-1, 2, value.numel(), dtype=torch.float64)
        found.append((value, *torch.autograd.grad(value, states, grad.view_as(value))))
    torch.testing.assert_close(*found)


def test_long_texts_are_weighed_by_matrix_products():
    states = torch.randn(700, 5, dtype=torch.float64).requires_grad_()
    weights = torch.randn(700, 3, dtype=torch.float64).requires_grad_()
    mask = torch.arange(600) < torch.tensor([[600], [100]])
    sums = RaggedTokens(states, mask).weighted_sum(weights)
    want = torch.stack(
        [weights[:600].mT @ states[:600], weights[600:].mT @ states[600:]]
    )
    torch.testing.assert_close(sums, want)
    grad = torch.randn_like(want)
    torch.testing.assert_close(
        torch.autograd.grad(sums, (weights, states), grad),
        torch.autograd.grad(want, (weights, states), grad),
    )


def test_an_undefined_number_is_the_largest():
    states = torch.tensor([[[1.0], [torch.nan], [5.0]], [[1.0], [2.0], [0.0]]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    largest = pack(states, mask).max()
    assert largest[0].isnan().all()
    assert largest[1] == 2
