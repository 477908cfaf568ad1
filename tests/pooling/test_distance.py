"""`CentralityPool` with ``max_relative_distance``: the graph knows how far apart words stand."""

import numpy as np
import pytest
import torch
from perron_tests.reference import stationary_by_eig
from torch.autograd import gradcheck

from perron import CentralityPool

D = 3


def pool_with_order(
    connectivity="mlp", num_heads=2, max_relative_distance=2, **options
):
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
    """Return the weights of each head, (H, N), from scores without order."""
    pool_without = CentralityPool(
        D, hidden_dim=4, num_heads=pool.num_heads, connectivity=pool.connectivity_name
    ).double()
    own = pool.state_dict()
    own.pop("distance.bias")
    pool_without.load_state_dict(own)
    found = pool_without(states[None], need_edges=True)
    n, max_relative_distance = len(states), pool.max_relative_distance
    weights = []
    for head in range(pool.num_heads):
        edges = found.head_edges[0, head].detach().numpy().copy()
        for i in range(n):
            for j in range(n):
                cut = max(-max_relative_distance, min(max_relative_distance, i - j))
                edges[i, j] *= np.exp(
                    pool.distance.bias[head, cut + max_relative_distance].item()
                )
        weights.append(stationary_by_eig(edges / edges.sum(0)))
    return np.stack(weights)


@pytest.mark.parametrize("connectivity", ["mlp", "bilinear", "query"])
@pytest.mark.parametrize("words", [1, 2, 7])
def test_edges_are_multiplied_by_what_their_distance_says(connectivity, words):
    pool = pool_with_order(connectivity)
    states = torch.randn(words, D, dtype=torch.float64)
    found = pool(states[None]).head_weights[0].detach().numpy()
    np.testing.assert_allclose(found, by_hand(pool, states), atol=1e-10)


def test_at_first_it_changes_nothing():
    torch.manual_seed(3)
    plain = CentralityPool(D)
    torch.manual_seed(3)
    ordered = CentralityPool(D, max_relative_distance=4)
    states = torch.randn(2, 5, D)
    torch.testing.assert_close(ordered(states).vector, plain(states).vector)
    torch.nn.init.ones_(ordered.distance.bias)
    ordered.reset_parameters()
    assert not ordered.distance.bias.any()


def test_padding_anywhere_changes_no_distance():
    pool = pool_with_order()
    states = torch.randn(1, 4, D, dtype=torch.float64)
    mask = torch.tensor([[0, 1, 0, 0, 1, 1, 0, 1, 0]], dtype=torch.bool)
    spread = torch.full((1, 9, D), torch.nan, dtype=torch.float64)
    spread[mask] = states[0]
    torch.testing.assert_close(pool(spread, mask).vector, pool(states).vector)
    flat = pool(states[0], lengths=[4])
    torch.testing.assert_close(flat.vector, pool(states).vector)
    empty = pool(spread, torch.zeros_like(mask))
    assert not empty.vector.any()


def test_order_matters_only_with_it():
    states = torch.randn(1, 6, D, dtype=torch.float64)
    turned = states.flip(1)
    plain = CentralityPool(D).double()
    torch.testing.assert_close(plain(states).vector, plain(turned).vector)
    pool = pool_with_order()
    assert not torch.allclose(pool(states).vector, pool(turned).vector)


@pytest.mark.parametrize("value", ["states", "incoming"])
def test_gradients(value):
    pool = pool_with_order(value=value)
    states = torch.randn(2, 5, D, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0]], dtype=torch.bool)

    def run(states, bias):
        parameters = {"distance.bias": bias}
        return torch.func.functional_call(pool, parameters, (states, mask)).vector

    bias = pool.distance.bias.detach().requires_grad_()
    assert gradcheck(run, (states, bias))


def test_many_threads_find_the_same_gradient_each_time(four_threads):
    """A run that is resumed ends with the same weights only if they do."""
    pool = CentralityPool(D, max_relative_distance=2)
    states = torch.randn(32, 60, D)  # enough for torch to use its threads
    found = set()
    for _ in range(10):
        pool.zero_grad()
        pool(states).vector.square().sum().backward()
        found.add(tuple(pool.distance.bias.grad.flatten().tolist()))
    assert len(found) == 1


def test_it_is_told_if_it_is_there():
    assert "max_relative_distance=2" in repr(CentralityPool(D, max_relative_distance=2))
    assert "max_relative_distance" not in repr(CentralityPool(D))
