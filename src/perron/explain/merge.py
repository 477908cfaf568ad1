"""Pieces of words become words: the graph of the groups of a graph's nodes."""

from collections.abc import Sequence

import numpy as np


def group_starts(goes_on: Sequence[bool]) -> list[int]:
    """Return where groups begin; a node that goes on is in the group before it."""
    return [place for place, follows in enumerate(goes_on) if not follows or not place]


def merged_weights(weights: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """α_I = Σ_{i∈I} α_i.

    Args:
        weights: of the nodes, (N).
        groups: the group of each node, 0, 0, 1, 2, 2, …
    """
    return _members(groups) @ weights


def merged_edges(
    edges: np.ndarray, weights: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """A_IJ = Σ_{i∈I, j∈J} A_ij α_j / α_J, so that what flows is what flowed before.

    The columns sum to one, and the merged weights are the stationary distribution of
    the merged graph: Σ_J A_IJ α_J = Σ_{i∈I} Σ_j A_ij α_j = α_I. Where every node is a
    group of its own, the edges stay as they are.
    """
    members = _members(groups)
    if len(members) == len(groups):
        return edges
    totals = members @ weights
    # Where no member weighs anything, all count alike.
    counted = np.where((totals > 0)[groups], weights, 1.0)
    counted = counted / (members @ counted)[groups]
    return members @ (edges * counted) @ members.T


def _members(groups: np.ndarray) -> np.ndarray:
    """Return a row for each group, with ones at its nodes."""
    count = int(groups[-1]) + 1 if len(groups) else 0
    return (np.arange(count)[:, None] == groups).astype(np.float64)
