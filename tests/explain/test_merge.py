import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perron.explain.build import group_starts, merged_edges, merged_weights


def chain(count, seed):
    """Return a left-stochastic graph and its stationary distribution."""
    edges = np.random.default_rng(seed).random((count, count)) + 0.01
    edges /= edges.sum(0)
    values, vectors = np.linalg.eig(edges)
    weights = vectors[:, np.argmax(values.real)].real
    return edges, weights / weights.sum()


def test_three_pieces_in_two_words_by_hand():
    edges = np.array([[0.2, 0.1, 0.5], [0.3, 0.5, 0.3], [0.5, 0.4, 0.2]])
    weights = np.array([0.25, 0.5, 0.25])
    groups = np.array([0, 1, 1])
    assert merged_weights(weights, groups).tolist() == [0.25, 0.75]
    merged = merged_edges(edges, weights, groups)
    # From the second word, two thirds of whose weight are its first piece's.
    np.testing.assert_allclose(merged[0], [0.2, (0.1 * 0.5 + 0.5 * 0.25) / 0.75])
    np.testing.assert_allclose(merged.sum(0), 1)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 99), st.lists(st.booleans(), min_size=1, max_size=9))
def test_merged_weights_are_stationary_in_the_merged_graph(seed, goes_on):
    edges, weights = chain(len(goes_on), seed)
    starts = group_starts(goes_on)
    groups = np.repeat(np.arange(len(starts)), np.diff([*starts, len(goes_on)]))
    shares = merged_weights(weights, groups)
    merged = merged_edges(edges, weights, groups)
    assert merged.shape == (len(starts), len(starts))
    np.testing.assert_allclose(merged.sum(0), 1)
    np.testing.assert_allclose(merged @ shares, shares, atol=1e-12)


def test_whole_words_stay_as_they_are():
    edges, weights = chain(4, 0)
    assert merged_edges(edges, weights, np.arange(4)) is edges


def test_a_word_that_weighs_nothing_has_edges_all_the_same():
    edges, _ = chain(3, 0)
    merged = merged_edges(edges, np.array([1.0, 0.0, 0.0]), np.array([0, 1, 1]))
    assert merged[0, 1] == pytest.approx(edges[0, 1:].mean())
    np.testing.assert_allclose(merged.sum(0), 1)


def test_no_words():
    nothing = np.zeros(0)
    groups = np.zeros(0, int)
    assert group_starts([]) == []
    assert merged_weights(nothing, groups).shape == (0,)
    assert merged_edges(np.zeros((0, 0)), nothing, groups).shape == (0, 0)
