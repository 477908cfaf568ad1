"""Pooling by a given graph: examples by hand, repeated squaring, and errors."""

import pytest
import torch
from perron_tests.errors import mentions
from torch.autograd import gradcheck

from perron import GraphCentralityPool

D = 3


def centrality(graph):
    """Return the Perron vector of an (N, N) matrix whose columns sum to one."""
    power = graph
    for _ in range(60):
        power = power @ power
        power = power / power.sum(-2, keepdim=True)
    return power[:, 0]


def example(n=6, texts=4):
    rng = torch.Generator().manual_seed(0)
    states = torch.randn(texts, n, D, generator=rng, dtype=torch.float64)
    graph = torch.rand(texts, n, n, generator=rng, dtype=torch.float64)
    return states, graph


def test_two_words_by_hand():
    # 0 keeps 0.8 of its importance and gives away 0.2; 1 keeps 0.4 and gives away 0.6.
    graph = torch.tensor([[[0.8, 0.6], [0.2, 0.4]]])
    weights = GraphCentralityPool(1, dim=-2)(torch.ones(1, 2, 1), graph).weights
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))


@pytest.mark.parametrize("dim", [-2, -1])
def test_outgoing_edges_are_normalized_to_sum_to_one(dim):
    states, graph = example()
    pooled = GraphCentralityPool(D, dim=dim)(states, graph, need_edges=True)
    scaled = graph / graph.sum(dim, keepdim=True)
    scaled = scaled if dim == -2 else scaled.mT
    torch.testing.assert_close(pooled.edges, scaled)
    want = torch.stack([centrality(one) for one in scaled])
    torch.testing.assert_close(pooled.weights, want)
    torch.testing.assert_close(pooled.vector, (want.unsqueeze(1) @ states).squeeze(1))


def test_dim_of_an_attention_map_is_its_rows():
    """Every word attends to word 2, which has all the weight with dim=-1."""
    attention = torch.full((1, 3, 3), 1e-6)
    attention[..., 2] = 1
    weights = GraphCentralityPool(1, dim=-1)(torch.ones(1, 3, 1), attention).weights
    assert weights.argmax() == 2
    assert weights.max() > 0.99


def test_edges_of_padding_are_never_read():
    states, graph = example()
    mask = torch.tensor([[1, 1, 0, 1, 0, 0]] * 4, dtype=torch.bool)
    poisoned = graph.masked_fill(
        ~(mask.unsqueeze(-1) & mask.unsqueeze(-2)), torch.nan
    ).requires_grad_()
    pool = GraphCentralityPool(D, dim=-2)
    pooled = pool(states, poisoned, mask)
    alone = pool(states[:, [0, 1, 3]], graph[:, [0, 1, 3]][:, :, [0, 1, 3]])
    torch.testing.assert_close(pooled.vector, alone.vector)
    pooled.vector.sum().backward()
    assert poisoned.grad.isfinite().all()


def test_a_word_without_outgoing_edges_points_to_all_words_equally():
    states, graph = example(3, 1)
    dangling, uniform = graph.clone(), graph.clone()
    dangling[..., 1] = 0
    uniform[..., 1] = 1
    pool = GraphCentralityPool(D, dim=-2)
    torch.testing.assert_close(pool(states, dangling), pool(states, uniform))


NEGATIVE_ROW = torch.zeros(3).index_fill(0, torch.tensor(2), -1)
INVALID = {
    "all negative": lambda graph: -graph,
    "negative column": lambda graph: graph.index_copy(
        2, torch.tensor([1]), NEGATIVE_ROW.double().view(1, 3, 1)
    ),
    "negative diagonal": lambda graph: graph - 2 * torch.eye(3),
    "infinite diagonal": lambda graph: graph + torch.diag(torch.tensor([0, 1, 0]) / 0),
    "nan": lambda graph: graph * torch.nan,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_graph_gives_nan_only_in_its_own_text(name):
    states, graph = example(3, 2)
    graph[:1] = INVALID[name](graph[:1])
    pool = GraphCentralityPool(D, dim=-2)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    weights = pool(states, graph, mask).weights
    assert weights[0].isnan().all()
    torch.testing.assert_close(
        weights[1:], pool(states[1:], graph[1:], mask[1:]).weights
    )


@pytest.mark.parametrize("scale", [1e-38, 1e38])
def test_the_scale_of_the_edges_does_not_matter(scale):
    states, graph = (t.float() for t in example())
    pool = GraphCentralityPool(D, dim=-2)
    want = pool(states, graph).weights
    torch.testing.assert_close(pool(states, graph * scale).weights, want)
    torch.testing.assert_close(pool(states, graph.double() * scale**7).weights, want)


@pytest.mark.parametrize("dim", [-2, -1])
@pytest.mark.parametrize("norm", ["sum", "l2"])
def test_gradcheck(dim, norm):
    states, graph = example(4, 3)
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
    pool = GraphCentralityPool(D, dim, norm)
    inputs = (states.requires_grad_(), graph.requires_grad_())
    assert gradcheck(lambda s, g: pool(s, g, mask).vector, inputs)


def test_invalid_arguments_raise_an_error():
    states, graph = example()
    pool = GraphCentralityPool(D, dim=-2)
    with pytest.raises(ValueError, match=mentions("graph", (4, 6, 6), "heads")):
        pool(states, graph.unsqueeze(1))
    with pytest.raises(ValueError, match=mentions("graph", "floating point", "int64")):
        pool(states, graph.long())
    with pytest.raises(ValueError, match=mentions("graph", "meta")):
        pool(states, graph.to("meta"))
    with pytest.raises(ValueError, match=mentions("dim", -2, -1, 1)):
        GraphCentralityPool(D, dim=1)
    with pytest.raises(ValueError, match=mentions("embed_dim", 0)):
        GraphCentralityPool(0, dim=-1)


def test_dim_is_required():
    with pytest.raises(ValueError, match=mentions("dim", None, "dim=-1", "attention")):
        GraphCentralityPool(D)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_an_attention_map_with_the_wrong_dim_raises_an_error(dtype):
    states, graph = example()
    mask = torch.tensor([[1, 1, 0, 1, 0, 0]] * 4, dtype=torch.bool)
    attention = graph.masked_fill(~mask.unsqueeze(1), -torch.inf).softmax(-1).to(dtype)
    rows, columns = (GraphCentralityPool(dim=dim) for dim in (-1, -2))
    want = rows(states, attention, mask)
    with pytest.raises(ValueError, match=r"dim.*-1.*-2"):
        columns(states, attention, mask)
    torch.testing.assert_close(columns(states, attention.mT, mask), want)
    with pytest.raises(ValueError, match=r"dim.*-2.*-1"):
        rows(states, attention.mT, mask)


@pytest.mark.parametrize("dim", [-2, -1])
def test_a_graph_that_fits_both_axes_is_accepted(dim):
    states, graph = example(2)
    pool = GraphCentralityPool(D, dim)
    symmetric = torch.tensor([[0.3, 0.7], [0.7, 0.3]]).double().expand(4, -1, -1)
    for ambiguous in (graph, symmetric, 0 * graph, graph[:0], graph[:, :0, :0]):
        texts, n, _ = ambiguous.shape
        assert pool(states[:texts, :n], ambiguous).vector.shape == (texts, D)
