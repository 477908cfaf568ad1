"""Padded and ragged token batches agree, including second derivatives."""

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
    "softmax": lambda tokens: tokens.to_padded(tokens.softmax(tokens.states)),
    "logsumexp": lambda tokens: tokens.logsumexp(tokens.states)[tokens.mask.any(1)],
    "sum": lambda tokens: tokens.sum(tokens.states.square()),
    "max": lambda tokens: tokens.max(),
    "weighted_sum": lambda tokens: tokens.weighted_sum(tokens.states[..., :2].sin()),
    "weighted_sum of values": lambda tokens: tokens.weighted_sum(
        tokens.states, tokens.states.cos()
    ),
    "broadcast": lambda tokens: tokens.to_padded(
        tokens.states * tokens.broadcast(tokens.sum(tokens.states))
    ),
    "mean_weights": lambda tokens: tokens.weighted_sum(tokens.mean_weights()),
    "to_ragged": lambda tokens: tokens.to_padded(
        tokens.to_ragged(tokens.to_padded(tokens.states))
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


def ragged_result(method, mask):
    return lambda states: method(pack(states, mask))


def padded_result(method, mask):
    padding = ~mask.unsqueeze(-1)
    return lambda states: method(PaddedTokens(states.masked_fill(padding, 0), mask))


def test_padded_and_ragged_results_and_gradients_agree(mask, method):
    states = random_states(mask).requires_grad_()
    results = []
    for result in (ragged_result, padded_result):
        value = result(method, mask)(states)
        grad = torch.linspace(-1, 2, value.numel(), dtype=torch.float64)
        results.append(
            (value, *torch.autograd.grad(value, states, grad.view_as(value)))
        )
    torch.testing.assert_close(*results)


def test_first_and_second_derivatives_of_ragged_tokens(mask, method):
    states = random_states(mask).requires_grad_()
    assert gradcheck(ragged_result(method, mask), (states,))
    assert gradgradcheck(ragged_result(method, mask), (states,))


def test_a_full_batch_is_not_copied():
    states = torch.randn(3, 4, 2)
    tokens = pack(states, torch.ones(3, 4, dtype=torch.bool))
    assert tokens.states.data_ptr() == states.data_ptr()


def test_numba_and_torch_kernels_agree(mask, method):
    """Other devices use the torch kernels, which run on the CPU here."""
    states = random_states(mask).requires_grad_()
    results = []
    for kernels in ("numba", "torch"):
        with use(kernels):
            value = ragged_result(method, mask)(states)
        grad = torch.linspace(-1, 2, value.numel(), dtype=torch.float64)
        results.append(
            (value, *torch.autograd.grad(value, states, grad.view_as(value)))
        )
    torch.testing.assert_close(*results)


def test_weighted_sums_of_long_texts():
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


def test_nan_is_the_maximum():
    states = torch.tensor([[[1.0], [torch.nan], [5.0]], [[1.0], [2.0], [0.0]]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    maximum = pack(states, mask).max()
    assert maximum[0].isnan().all()
    assert maximum[1] == 2
