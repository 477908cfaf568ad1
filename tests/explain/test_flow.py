import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perron_tests.errors import mentions
from perron_tests.explanations import document, graph, pair, text

from perron.explain import Graph, Head
from perron.explain.flow import check_head, flows, incoming, outgoing, shares, strongest

# 0 gives all to 1; 1 gives a quarter back and keeps the rest.
EDGES = [[0.0, 0.25], [1.0, 0.75]]
BY_HAND = Graph(["a", "b"], [(0, 1), (2, 3)], [0.2, 0.8], [Head([0.2, 0.8], EDGES)])


def test_two_words_by_hand():
    np.testing.assert_allclose(flows(BY_HAND), [[0, 0.2], [0.2, 0.6]])
    moved = flows(BY_HAND)
    assert [flow[:2] for flow in incoming(moved, 1, 5)] == [(1, 1), (0, 1)]
    assert [flow[:2] for flow in outgoing(moved, 0, 5)] == [(0, 1)]  # to itself none
    assert [flow[:2] for flow in outgoing(moved, 1, 1)] == [(1, 1)]
    assert {flow[:2] for flow in strongest(moved)} == {(0, 1), (1, 0)}
    assert all(flow.share == pytest.approx(0.2) for flow in strongest(moved))


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 99))
def test_rows_and_columns_sum_to_the_weights(count, heads, seed):
    made = graph(["w"] * count, heads, seed=seed)
    for head in (None, *range(heads)):
        moved = flows(made, head)
        np.testing.assert_allclose(moved.sum(0), shares(made, head), rtol=1e-9)
        np.testing.assert_allclose(moved.sum(1), shares(made, head), rtol=1e-9)


@settings(deadline=None)
@given(st.integers(1, 9), st.floats(0, 4), st.integers(0, 99))
def test_the_strongest_are_those_and_no_others(count, per_node, seed):
    moved = flows(graph(["w"] * count, seed=seed))
    found = strongest(moved, per_node)
    between = [moved[i, j] for i in range(count) for j in range(count) if i != j]
    want = sorted(between, reverse=True)[: round(per_node * count)]
    assert [flow.share for flow in found] == want
    assert all(moved[flow.target, flow.source] == flow.share for flow in found)
    assert all(flow.source != flow.target for flow in found)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_partners_come_in_the_order_of_what_they_share(count, most, seed):
    moved = flows(graph(["w"] * count, seed=seed))
    node = seed % count
    come, go = incoming(moved, node, most), outgoing(moved, node, most)
    assert [flow.share for flow in come] == sorted(moved[node])[::-1][:most]
    assert [flow.share for flow in go] == sorted(moved[:, node])[::-1][:most]
    assert {flow.target for flow in come} == {flow.source for flow in go} == {node}


@pytest.mark.parametrize("head", [-1, 2])
def test_a_head_that_is_not_there_is_named(head):
    with pytest.raises(ValueError, match=mentions(f"head {head}", "demo", 0, 1)):
        check_head(pair(heads=2), head)
    with pytest.raises(ValueError, match=mentions("head 0", "demo", "heads")):
        check_head(text(weights=False), 0)
    check_head(pair(heads=2), 1)
    check_head(text(weights=False), None)


def test_a_level_with_fewer_heads_shows_their_mean():
    made = document(heads=1)
    two = graph(made.sentences.nodes, heads=2, seed=9)
    assert shares(made.words[0], 1) == made.words[0].weights
    assert shares(two, 1) == two.heads[1].weights != two.weights
    assert shares(two, 2) == two.weights
    np.testing.assert_array_equal(flows(two, 2), flows(two))
    np.testing.assert_array_equal(flows(made.words[0], 1), flows(made.words[0]))


def test_a_graph_without_edges_says_so():
    with pytest.raises(ValueError, match="edges"):
        graph(["a"], edges=False).edges()
