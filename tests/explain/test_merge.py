import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perron.explain.build import group_starts, merge_edges, merge_weights


def chain(count, seed):
    """Return a left-stochastic graph and its stationary distribution."""
    edges = np.random.default_rng(seed).random((count, count)) + 0.01
    edges /= edges.sum(0)
    values, vectors = np.linalg.eig(edges)
    weights = vectors[:, np.argmax(values.real)].real
    return edges, weights / weights.sum()


def test_subwords_are_merged_into_words():
    edges = np.array([[0.2, 0.1, 0.5], [0.3, 0.5, 0.3], [0.5, 0.4, 0.2]])
    weights = np.array([0.25, 0.5, 0.25])
    groups = np.array([0, 1, 1])
    assert merge_weights(weights, groups).tolist() == [0.25, 0.75]
    merged = merge_edges(edges, weights, groups)
    # The first subword has two thirds of the weight of the second word.
    np.testing.assert_allclose(merged[0], [0.2, (0.1 * 0.5 + 0.5 * 0.25) / 0.75])
    np.testing.assert_allclose(merged.sum(0), 1)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 99), st.lists(st.booleans(), min_size=1, max_size=9))
def test_merged_weights_are_stationary_in_the_merged_graph(seed, is_continuation):
    edges, weights = chain(len(is_continuation), seed)
    starts = group_starts(is_continuation)
    groups = np.repeat(np.arange(len(starts)), np.diff([*starts, len(is_continuation)]))
    merged_weights = merge_weights(weights, groups)
    merged = merge_edges(edges, weights, groups)
    assert merged.shape == (len(starts), len(starts))
    np.testing.assert_allclose(merged.sum(0), 1)
    np.testing.assert_allclose(merged @ merged_weights, merged_weights, atol=1e-12)


def test_words_of_one_token_are_not_changed():
    edges, weights = chain(4, 0)
    assert merge_edges(edges, weights, np.arange(4)) is edges


def test_a_word_of_weight_zero_has_edges():
    edges, _ = chain(3, 0)
    merged = merge_edges(edges, np.array([1.0, 0.0, 0.0]), np.array([0, 1, 1]))
    assert merged[0, 1] == pytest.approx(edges[0, 1:].mean())
    np.testing.assert_allclose(merged.sum(0), 1)


def test_a_graph_without_words_can_be_merged():
    weights = np.zeros(0)
    groups = np.zeros(0, int)
    assert group_starts([]) == []
    assert merge_weights(weights, groups).shape == (0,)
    assert merge_edges(np.zeros((0, 0)), weights, groups).shape == (0, 0)
