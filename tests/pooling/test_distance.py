"""Relative distance bias of `CentralityPool`."""

import numpy as np
import pytest
import torch
from perron_tests.reference import stationary_by_eig
from torch.autograd import gradcheck

from perron import CentralityPool

D = 3


def pool_with_bias(connectivity="mlp", num_heads=2, max_relative_distance=2, **options):
    pool = CentralityPool(
        D,
        hidden_dim=4,
        num_heads=num_heads,
        connectivity=connectivity,
        max_relative_distance=max_relative_distance,
        **options,
    ).double()
    torch.nn.init.normal_(pool.distance.bias)
    return pool


def by_hand(pool, states):
    """Return the weights of each head, (H, N), from edges without the bias."""
    plain = CentralityPool(
        D, hidden_dim=4, num_heads=pool.num_heads, connectivity=pool.connectivity_name
    ).double()
    state = pool.state_dict()
    state.pop("distance.bias")
    plain.load_state_dict(state)
    output = plain(states[None], need_edges=True)
    n, limit = len(states), pool.max_relative_distance
    weights = []
    for head in range(pool.num_heads):
        edges = output.head_edges[0, head].detach().numpy().copy()
        for i in range(n):
            for j in range(n):
                distance = max(-limit, min(limit, i - j))
                bias = pool.distance.bias[head, distance + limit].item()
                edges[i, j] *= np.exp(bias)
        weights.append(stationary_by_eig(edges / edges.sum(0)))
    return np.stack(weights)


@pytest.mark.parametrize("connectivity", ["mlp", "bilinear", "query"])
@pytest.mark.parametrize("words", [1, 2, 7])
def test_the_bias_multiplies_edges_by_its_exponential(connectivity, words):
    pool = pool_with_bias(connectivity)
    states = torch.randn(words, D, dtype=torch.float64)
    weights = pool(states[None]).head_weights[0].detach().numpy()
    np.testing.assert_allclose(weights, by_hand(pool, states), atol=1e-10)


def test_the_initial_bias_is_zero():
    torch.manual_seed(3)
    plain = CentralityPool(D)
    torch.manual_seed(3)
    biased = CentralityPool(D, max_relative_distance=4)
    states = torch.randn(2, 5, D)
    torch.testing.assert_close(biased(states).vector, plain(states).vector)
    torch.nn.init.ones_(biased.distance.bias)
    biased.reset_parameters()
    assert not biased.distance.bias.any()


def test_padding_does_not_change_distances():
    pool = pool_with_bias()
    states = torch.randn(1, 4, D, dtype=torch.float64)
    mask = torch.tensor([[0, 1, 0, 0, 1, 1, 0, 1, 0]], dtype=torch.bool)
    padded = torch.full((1, 9, D), torch.nan, dtype=torch.float64)
    padded[mask] = states[0]
    torch.testing.assert_close(pool(padded, mask).vector, pool(states).vector)
    ragged = pool(states[0], lengths=[4])
    torch.testing.assert_close(ragged.vector, pool(states).vector)
    empty = pool(padded, torch.zeros_like(mask))
    assert not empty.vector.any()


def test_the_order_of_words_matters_only_with_the_bias():
    states = torch.randn(1, 6, D, dtype=torch.float64)
    flipped = states.flip(1)
    plain = CentralityPool(D).double()
    torch.testing.assert_close(plain(states).vector, plain(flipped).vector)
    pool = pool_with_bias()
    assert not torch.allclose(pool(states).vector, pool(flipped).vector)


@pytest.mark.parametrize("value", ["states", "incoming"])
def test_gradients(value):
    pool = pool_with_bias(value=value)
    states = torch.randn(2, 5, D, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0]], dtype=torch.bool)

    def run(states, bias):
        parameters = {"distance.bias": bias}
        return torch.func.functional_call(pool, parameters, (states, mask)).vector

    bias = pool.distance.bias.detach().requires_grad_()
    assert gradcheck(run, (states, bias))


def test_the_gradient_is_deterministic_with_several_threads(four_threads):
    """A resumed run ends with the same weights only if it is."""
    pool = CentralityPool(D, max_relative_distance=2)
    states = torch.randn(32, 60, D)  # enough for torch to use its threads
    gradients = set()
    for _ in range(10):
        pool.zero_grad()
        pool(states).vector.square().sum().backward()
        gradients.add(tuple(pool.distance.bias.grad.flatten().tolist()))
    assert len(gradients) == 1


def test_repr_shows_the_option_only_if_it_is_set():
    assert "max_relative_distance=2" in repr(CentralityPool(D, max_relative_distance=2))
    assert "max_relative_distance" not in repr(CentralityPool(D))
