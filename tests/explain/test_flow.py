import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perron_tests.errors import mentions
from perron_tests.explanations import document, graph, pair, text

from perron.explain import Graph, Head
from perron.explain.flow import (
    check_head,
    flow_matrix,
    incoming,
    node_weights,
    outgoing,
    strongest_flows,
)

# Node 0 passes everything to node 1, which passes a quarter back.
EDGES = [[0.0, 0.25], [1.0, 0.75]]
TWO_WORDS = Graph(["a", "b"], [(0, 1), (2, 3)], [0.2, 0.8], [Head([0.2, 0.8], EDGES)])


def test_flows_are_edges_times_weights():
    np.testing.assert_allclose(flow_matrix(TWO_WORDS), [[0, 0.2], [0.2, 0.6]])
    matrix = flow_matrix(TWO_WORDS)
    assert [flow[:2] for flow in incoming(matrix, 1, 5)] == [(1, 1), (0, 1)]
    assert [flow[:2] for flow in outgoing(matrix, 0, 5)] == [(0, 1)]  # not to itself
    assert [flow[:2] for flow in outgoing(matrix, 1, 1)] == [(1, 1)]
    assert {flow[:2] for flow in strongest_flows(matrix)} == {(0, 1), (1, 0)}
    assert all(flow.share == pytest.approx(0.2) for flow in strongest_flows(matrix))


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 99))
def test_rows_and_columns_sum_to_the_weights(count, heads, seed):
    words = graph(["w"] * count, heads, seed=seed)
    for head in (None, *range(heads)):
        matrix = flow_matrix(words, head)
        np.testing.assert_allclose(matrix.sum(0), node_weights(words, head), rtol=1e-9)
        np.testing.assert_allclose(matrix.sum(1), node_weights(words, head), rtol=1e-9)


@settings(deadline=None)
@given(st.integers(1, 9), st.floats(0, 4), st.integers(0, 99))
def test_the_strongest_flows_are_returned(count, per_node, seed):
    matrix = flow_matrix(graph(["w"] * count, seed=seed))
    flows = strongest_flows(matrix, per_node)
    off_diagonal = [matrix[i, j] for i in range(count) for j in range(count) if i != j]
    expected = sorted(off_diagonal, reverse=True)[: round(per_node * count)]
    assert [flow.share for flow in flows] == expected
    assert all(matrix[flow.target, flow.source] == flow.share for flow in flows)
    assert all(flow.source != flow.target for flow in flows)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_flows_of_a_node_are_sorted(count, limit, seed):
    matrix = flow_matrix(graph(["w"] * count, seed=seed))
    node = seed % count
    into, out = incoming(matrix, node, limit), outgoing(matrix, node, limit)
    assert [flow.share for flow in into] == sorted(matrix[node])[::-1][:limit]
    assert [flow.share for flow in out] == sorted(matrix[:, node])[::-1][:limit]
    assert {flow.target for flow in into} == {flow.source for flow in out} == {node}


@pytest.mark.parametrize("head", [-1, 2])
def test_a_missing_head_is_an_error(head):
    with pytest.raises(ValueError, match=mentions(f"head {head}", "demo", 0, 1)):
        check_head(pair(heads=2), head)
    with pytest.raises(ValueError, match=mentions("head 0", "demo", "heads")):
        check_head(text(weights=False), 0)
    check_head(pair(heads=2), 1)
    check_head(text(weights=False), None)


def test_a_graph_with_fewer_heads_uses_their_mean():
    record = document(heads=1)
    two = graph(record.sentences.nodes, heads=2, seed=9)
    assert node_weights(record.words[0], 1) == record.words[0].weights
    assert node_weights(two, 1) == two.heads[1].weights != two.weights
    assert node_weights(two, 2) == two.weights
    np.testing.assert_array_equal(flow_matrix(two, 2), flow_matrix(two))
    np.testing.assert_array_equal(
        flow_matrix(record.words[0], 1), flow_matrix(record.words[0])
    )


def test_reading_missing_edges_is_an_error():
    with pytest.raises(ValueError, match="edges"):
        graph(["a"], edges=False).edges()
