"""Aggregators against examples by hand and plain loops."""

import math

import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.plain import run_plain

from perron import (
    CentralityPool,
    DynamicRoutingPool,
    FirstPool,
    IntraAttentionPool,
    MaxPool,
    MeanPool,
    PowerIteration,
    SelfAttentionPool,
)


@pytest.fixture
def words():
    return torch.tensor([[[1.0, -2], [3, -5], [2, 0]]])


def test_max_is_the_maximum_of_each_coordinate(words):
    assert MaxPool(2)(words).vector.tolist() == [[3.0, 0.0]]


def test_mean_weights_all_words_equally(words):
    pooled = MeanPool(2)(words)
    torch.testing.assert_close(pooled.vector, torch.tensor([[2.0, -7 / 3]]))
    torch.testing.assert_close(pooled.weights, torch.full((1, 3), 1 / 3))


def test_first_is_the_first_word_that_is_not_padding(words):
    states = words.expand(3, -1, -1)
    mask = torch.tensor([[True, True, True], [False, True, True], [False] * 3])
    pooled = FirstPool(2)(states, mask)
    assert pooled.vector.tolist() == [[1, -2], [3, -5], [0, 0]]
    assert pooled.weights.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_self_attention_is_a_softmax_over_words(words):
    pool = SelfAttentionPool(2, num_queries=2, hidden_dim=4)
    pooled = pool(words)
    for q in range(2):
        scores = [
            pool.query.weight[q] @ torch.tanh(pool.key.weight @ h + pool.key.bias)
            for h in words[0]
        ]
        weights = torch.stack(scores).softmax(0)
        torch.testing.assert_close(pooled.head_weights[0, q], weights)
        torch.testing.assert_close(
            pooled.vector[0, 2 * q : 2 * q + 2], weights @ words[0]
        )


def test_intra_attention_is_a_softmax_with_the_mean_as_query(words):
    pool = IntraAttentionPool(2, hidden_dim=4)
    mean = words[0].mean(0)
    scores = [
        pool.score.weight[0]
        @ torch.tanh(pool.word.weight @ h + pool.word.bias + pool.mean.weight @ mean)
        for h in words[0]
    ]
    torch.testing.assert_close(pool(words).weights[0], torch.stack(scores).softmax(0))


def squash(s):
    length = s.norm()
    return s * length / (1 + length**2)


@pytest.mark.parametrize("reverse", [False, True])
def test_dynamic_routing_agrees_with_the_loop_of_its_paper(words, reverse):
    pool = DynamicRoutingPool(
        2, num_capsules=2, num_iterations=3, reverse=reverse, capsule_dim=3
    )
    votes = torch.stack([pool.vote(h).tanh().view(2, 3) for h in words[0]])  # (N, C, 3)
    logits = torch.zeros(3, 2)
    for _ in range(3):
        routing = logits.softmax(0 if reverse else 1)
        out = [
            squash(sum(routing[i, c] * votes[i, c] for i in range(3))) for c in (0, 1)
        ]
        for i in range(3):
            for c in (0, 1):
                logits[i, c] += votes[i, c] @ out[c]
    pooled = pool(words)
    torch.testing.assert_close(pooled.vector[0], torch.cat(out))
    torch.testing.assert_close(pooled.head_weights[0], (routing / routing.sum(0)).T)
    assert pool.out_dim == 6


def test_routing_of_a_single_word_is_its_squashed_vote():
    pool = DynamicRoutingPool(4, num_capsules=2, reverse=True)
    word = torch.randn(1, 1, 4)
    votes = pool.vote(word[0, 0]).tanh().view(2, 2)
    want = torch.cat([squash(votes[0]), squash(votes[1])])
    torch.testing.assert_close(pool(word).vector[0], want)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_mlp_edges_agree_with_the_network_of_the_paper(activation):
    pool = CentralityPool(3, hidden_dim=4, num_heads=2, activation=activation)
    net = pool.connectivity
    words = torch.randn(1, 5, 3)
    edges = pool(words, need_edges=True).head_edges
    act = getattr(torch, activation)
    for head in range(2):
        units = slice(4 * head, 4 * head + 4)
        scores = torch.empty(5, 5)
        for i in range(5):
            for j in range(5):
                a = net.target.weight[units] @ words[0, i] + net.target.bias[units]
                b = net.source.weight[units] @ words[0, j]
                scores[i, j] = net.score[head] @ act(a + b)
        torch.testing.assert_close(edges[0, head], scores.softmax(0))


def test_bilinear_edges_are_a_scaled_dot_product():
    pool = CentralityPool(3, hidden_dim=4, connectivity="bilinear")
    net = pool.connectivity
    words = torch.randn(1, 5, 3)
    scores = net.target(words[0]) @ net.source(words[0]).T / math.sqrt(4)
    edges = pool(words, need_edges=True).edges
    torch.testing.assert_close(edges[0], scores.softmax(0))


@pytest.mark.parametrize("connectivity", ["mlp", "bilinear", "query"])
def test_the_weights_are_the_perron_vector_of_the_edges(connectivity):
    pool = CentralityPool(3, num_heads=2, connectivity=connectivity)
    pooled = pool(torch.randn(4, 6, 3), need_edges=True)
    image = (pooled.head_edges @ pooled.head_weights.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(image, pooled.head_weights)
    torch.testing.assert_close(pooled.weights.sum(-1), torch.ones(4))
    torch.testing.assert_close(pooled.head_edges.sum(-2), torch.ones(4, 2, 6))


def test_query_connectivity_is_self_attention():
    centrality = CentralityPool(3, hidden_dim=4, num_heads=2, connectivity="query")
    attention = SelfAttentionPool(3, num_queries=2, hidden_dim=4)
    attention.load_state_dict(
        {f"{n}": p for n, p in centrality.connectivity.state_dict().items()}
    )
    words = torch.randn(4, 6, 3)
    mask = torch.rand(4, 6) < 0.7
    torch.testing.assert_close(
        centrality(words, mask).head_weights, attention(words, mask).head_weights
    )


@pytest.mark.parametrize("gradient", ["unrolled", "truncated", "reverse"])
def test_solvers_agree_and_power_iteration_reports_convergence(gradient):
    direct = CentralityPool(3, num_heads=2).double()
    power = CentralityPool(
        3, num_heads=2, solver=PowerIteration(tol=1e-13, gradient=gradient)
    ).double()
    power.load_state_dict(direct.state_dict())
    words = torch.randn(4, 6, 3, dtype=torch.float64)
    results = []
    for pool in (direct, power):
        pooled = pool(words)
        grads = torch.autograd.grad(pooled.vector.square().sum(), pool.parameters())
        results.append((pooled.vector, *grads))
    torch.testing.assert_close(results[0], results[1])
    assert direct(words).solver_info is None
    info = power(words).solver_info
    assert (
        info.iterations.shape == info.residual.shape == info.converged.shape == (4, 2)
    )
    assert info.converged.all()


def test_l2_weights_have_unit_length():
    pooled = CentralityPool(3, norm="l2")(torch.randn(2, 5, 3))
    torch.testing.assert_close(pooled.weights.norm(dim=-1), torch.ones(2))


@pytest.mark.slow
def test_every_aggregator_compiles_to_a_single_graph():
    assert len(run_plain("compile_pools.py").split()) == 12


def test_centrality_pool_learns():
    """The target is the word with the largest first coordinate."""
    rng = torch.Generator().manual_seed(0)
    states = torch.randn(256, 6, 8, generator=rng)
    target = states[torch.arange(256), states[:, :, 0].argmax(1)]
    pool = CentralityPool(8)
    optimizer = torch.optim.Adam(pool.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = (pool(states).vector - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.35 * losses[0]


@pytest.mark.parametrize("cls", [MaxPool, MeanPool, FirstPool])
def test_simple_aggregators_do_not_need_embed_dim(cls):
    pool = cls()
    assert repr(pool) == f"{cls.__name__}()"
    for dim in (3, 5):
        states = torch.randn(2, 4, dim)
        assert torch.equal(pool(states).vector, cls(dim)(states).vector)
    assert cls(5).out_dim == 5
    with pytest.raises(AttributeError, match="out_dim"):
        pool.out_dim  # noqa: B018
    with pytest.raises(ValueError, match=mentions("states", "(B, N, D)", (3, 4))):
        pool(torch.randn(3, 4))
