"""How importance flows through a graph, in numbers and in words."""

import re
from collections.abc import Iterable, Sequence
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


NO_WORDS = "no words"
CUT = "… (the model reads no further)"

# What XML forbids or a terminal obeys; a lone half of a surrogate pair is no character.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_TOLD = 4  # partners that a word's story names


def printable(text: str) -> str:
    """Return the text on one line, with � for what cannot be shown."""
    return _FORBIDDEN.sub("�", " ".join(text.split()))


def per_cent(share: float) -> str:
    """Return a share as 31 %, 3.1 % or 0.3 %."""
    return f"{100 * share:.{0 if share >= 0.0995 else 1}f} %"


def verdict(record: Explanation) -> str:
    """Return the label and its probability."""
    share = f"{100 * record.probabilities[record.label]:.1f} %"
    return f"{printable(record.label)} {share}"


def made_of(record: Explanation, head: int | None = None) -> str:
    """Return the name of the model and what it is made of."""
    model = record.model
    parts = [model.encoder, model.aggregator]
    if head is not None:
        parts.append(f"head {head}")
    return f"{printable(model.name)} ({', '.join(parts)})"


def summary(record: Explanation, head: int | None = None) -> str:
    """Return the heaviest words of each text, for those who do not see the picture."""
    told = []
    for graph in record.words:
        nodes = [printable(node) for node in graph.nodes]
        weights = shares(graph, head)
        if weights is None or not nodes:
            told.append(" ".join(nodes) or NO_WORDS)
            continue
        order = sorted(range(len(nodes)), key=lambda node: -weights[node])[:_TOLD]
        told.append(
            ", ".join(f"{nodes[node]} {per_cent(weights[node])}" for node in order)
        )
    return ". ".join(told or [NO_WORDS]) + "."


def story(
    nodes: Sequence[str],
    node: int,
    share: float | None,
    moved: np.ndarray | None = None,
) -> str:
    """Return what there is to know of one node: its weight, from whom, to whom.

    The partners' per cents are of this node's own importance.
    """
    told = printable(nodes[node])
    if share is None:
        return told
    told += f": {per_cent(share)}"
    if moved is None or not share:
        return told

    def named(partners: Iterable[tuple[int, float]]) -> str:
        return ", ".join(
            f"{'itself' if other == node else printable(nodes[other])} "
            f"{per_cent(part / share)}"
            for other, part in partners
        )

    come = ((flow.source, flow.share) for flow in incoming(moved, node, _TOLD))
    go = ((flow.target, flow.share) for flow in outgoing(moved, node, _TOLD))
    return f"{told}. It comes from {named(come)}; it goes to {named(go)}."
