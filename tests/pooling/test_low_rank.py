"""Low-rank centrality agrees with the explicit graph, in linear time."""

import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.graphs import DTYPE
from perron_tests.triton import with_triton

from perron import CentralityPool, PowerIteration, stationary_distribution
from perron.kernels import use

D = 6
KERNELS = with_triton({"auto": "auto"})


@pytest.fixture(params=[1, 3])
def heads(request):
    return request.param


@pytest.fixture(params=KERNELS)
def pool(heads, request):
    torch.manual_seed(0)
    pool = CentralityPool(D, 7, heads, connectivity="low_rank", rank=4).to(DTYPE)
    with torch.no_grad():
        for parameter in pool.parameters():
            parameter.mul_(4)  # make the topics differ
    with use(KERNELS[request.param]):
        yield pool


@pytest.fixture
def batch():
    rng = torch.Generator().manual_seed(1)
    states = torch.randn(5, 9, D, generator=rng, dtype=DTYPE)
    mask = torch.rand(5, 9, generator=rng) < 0.7
    mask[3] = False
    return states, mask


def features(pool, states):
    """Return φ and ψ, computed from the parameters, (B, N, H, r)."""
    net = pool.connectivity
    f = net.to_words(net.target(states).tanh())
    g = net.of_words(net.source(states).tanh())
    return [x.exp().unflatten(-1, (pool.num_heads, pool.rank)) for x in (f, g)]


def explicit_graph(pool, states, mask):
    """Return A_ij ∝ φ_i·ψ_j with normalized columns, (B, H, N, N)."""
    phi, psi = features(pool, states)
    graph = torch.einsum("bihr,bjhr->bhij", phi, psi)
    graph = graph * mask[:, None, :, None] * mask[:, None, None, :]
    total = graph.sum(-2, keepdim=True)
    return graph / torch.where(total == 0, 1, total)


def test_edges_agree_with_the_features(pool, batch):
    pooled = pool(*batch, need_edges=True)
    torch.testing.assert_close(pooled.head_edges, explicit_graph(pool, *batch))


def test_weights_and_gradients_agree_with_the_dense_graph(pool, heads, batch):
    states, mask = batch
    states.requires_grad_()
    leaves = (states, *pool.parameters())
    got = pool(states, mask)
    weights = stationary_distribution(
        explicit_graph(pool, states, mask), mask.unsqueeze(1)
    )
    want = (weights @ states).flatten(1)
    torch.testing.assert_close(got.head_weights, weights)
    torch.testing.assert_close(got.vector, want)
    grad = torch.randn(5, heads * D, dtype=DTYPE)
    torch.testing.assert_close(
        torch.autograd.grad(got.vector, leaves, grad),
        torch.autograd.grad(want, leaves, grad),
    )


def test_power_iteration_on_the_chain_gives_the_same_weights(pool, batch):
    want = pool(*batch).weights
    if want.dtype == torch.float32:
        pytest.skip("float32 does not reach the tolerance")
    pool.solver = PowerIteration(tol=1e-13, max_iter=5000)
    pooled = pool(*batch)
    torch.testing.assert_close(pooled.weights, want)
    assert pooled.solver_info.converged.all()


def test_texts_of_very_different_lengths_agree_with_single_texts(pool):
    states = torch.randn(3005, D, dtype=DTYPE).requires_grad_()
    lengths = [3000, 0, 2, 3]
    batched = pool(states, lengths=lengths).vector
    single = torch.cat([pool(t.unsqueeze(0)).vector for t in states.split(lengths)])
    torch.testing.assert_close(batched, single)
    grad = torch.randn_like(batched)
    torch.testing.assert_close(
        torch.autograd.grad(batched, states, grad),
        torch.autograd.grad(single, states, grad),
    )


def test_memory_is_linear_in_the_number_of_words():
    pool = CentralityPool(8, connectivity="low_rank")
    states = torch.randn(1, 20_000, 8, requires_grad=True)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (sizes.append(t.numel()), t)[1], lambda t: t
    ):
        pool(states).vector.sum().backward()
    assert max(sizes) <= 20_000 * 100  # two hidden layers of 50 units


def test_need_edges_of_a_very_large_graph_raises_an_error():
    pool = CentralityPool(D, connectivity="low_rank")
    with pytest.raises(ValueError, match=mentions("4 GB", "need_edges")):
        pool(torch.randn(1, 32_000, D), need_edges=True)


def test_very_large_scores_do_not_overflow():
    """Each of two topics puts all its weight on one word, where the walk ends."""
    pool = CentralityPool(2, 2, connectivity="low_rank", rank=2, activation="relu")
    net = pool.connectivity
    with torch.no_grad():
        for parameter in pool.parameters():
            parameter.zero_()
        net.target.weight.copy_(torch.eye(2))
        net.to_words.weight.copy_(1e4 * torch.eye(2))
        net.of_words.bias.copy_(torch.tensor([1e4, 0.0]))
    states = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    weights = pool(states).weights
    torch.testing.assert_close(weights, torch.tensor([[1.0, 0.0, 0.0]]))
