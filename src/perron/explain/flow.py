"""How importance flows through a graph: where it comes from, and where it goes."""

from typing import NamedTuple

import numpy as np

from perron.errors import SettingsError
from perron.explain.records import Explanation, Graph


class Flow(NamedTuple):
    """What one node passes to another: A_ij α_j, as a share of all importance.

    Where edges are looked at, and not flows, the share is A_ij itself.
    """

    source: int
    target: int
    share: float


def check_head(record: Explanation, head: int | None) -> None:
    """Refuse a head that no graph of the record has."""
    count = max((len(graph.heads) for graph in record.graphs), default=0)
    if head is None or 0 <= head < count:
        return
    have = f"heads 0 to {count - 1}" if count > 1 else "only head 0"
    have = have if count else "no heads"
    raise SettingsError(f"head {head}: {record.model.name} has {have}")


def head_of(graph: Graph, head: int | None) -> int | None:
    """Return the head to show: the mean, None, of a graph that has fewer of them.

    The two levels of a document may differ in this.
    """
    return head if head is not None and head < len(graph.heads) else None


def shares(graph: Graph, head: int | None = None) -> list[float] | None:
    """Return what the nodes weigh, in one head or in the mean of all."""
    one = head_of(graph, head)
    return graph.weights if one is None else graph.heads[one].weights


def flows(graph: Graph, head: int | None = None) -> np.ndarray:
    """Return A_ij α_j, from j to i, for one head or as the mean of all, (N, N).

    As Aα = α and the columns of A sum to one, each row and each column sums to what
    its node weighs.
    """
    one = head_of(graph, head)
    chosen = range(len(graph.heads)) if one is None else [one]
    return np.mean(
        [graph.edges(place) * np.array(graph.heads[place].weights) for place in chosen],
        axis=0,
    )


def strongest(matrix: np.ndarray, per_node: float = 3.0) -> list[Flow]:
    """Return the strongest entries between different nodes, the strongest first.

    Args:
        matrix: from j to i: flows, or edges.
        per_node: how many, on average.
    """
    between = matrix.copy()
    np.fill_diagonal(between, 0)
    order = np.argsort(-between, axis=None, kind="stable")
    return _flows(between, order[: round(per_node * len(matrix))])


def incoming(moved: np.ndarray, node: int, count: int) -> list[Flow]:
    """Return where most of a node's importance comes from; itself may be among them."""
    order = np.argsort(-moved[node], kind="stable")[:count]
    return _flows(moved, node * len(moved) + order)


def outgoing(moved: np.ndarray, node: int, count: int) -> list[Flow]:
    """Return where most of a node's importance goes; itself may be among them."""
    order = np.argsort(-moved[:, node], kind="stable")[:count]
    return _flows(moved, order * len(moved) + node)


def _flows(moved: np.ndarray, places: np.ndarray) -> list[Flow]:
    """Return the flows at these places of the flattened matrix, if there are any."""
    targets, sources = np.unravel_index(places, moved.shape)
    rows = zip(sources.tolist(), targets.tolist(), strict=True)
    found = [Flow(j, i, float(moved[i, j])) for j, i in rows]
    return [flow for flow in found if flow.share > 0]
