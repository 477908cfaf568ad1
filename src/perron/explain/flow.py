"""Flows of importance through a graph, and the texts and colors that views share."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from perron.errors import SettingsError
from perron.explain.records import Explanation, Graph


class Flow(NamedTuple):
    """Importance that one node passes to another.

    Attributes:
        source: Node j.
        target: Node i.
        share: A_ij α_j, as a share of the total importance. If only edges are
            considered, A_ij.
    """

    source: int
    target: int
    share: float


def check_head(record: Explanation, head: int | None) -> None:
    """Raise an error if no graph of the record has this head."""
    count = max((len(graph.heads) for graph in record.graphs), default=0)
    if head is None or 0 <= head < count:
        return
    name = record.model.name
    if not count:
        raise SettingsError(f"head {head} does not exist: {name} has no heads.")
    heads = f"heads 0 to {count - 1}" if count > 1 else "only head 0"
    raise SettingsError(f"head {head} does not exist: {name} has {heads}.")


def resolve_head(graph: Graph, head: int | None) -> int | None:
    """Return the head to show, or None for the mean if the graph has fewer heads.

    The two levels of a document may have different numbers of heads.
    """
    return head if head is not None and head < len(graph.heads) else None


def node_weights(graph: Graph, head: int | None = None) -> list[float] | None:
    """Return the weights of the nodes, in one head or averaged over all heads."""
    shown = resolve_head(graph, head)
    return graph.weights if shown is None else graph.heads[shown].weights


def flow_matrix(graph: Graph, head: int | None = None) -> np.ndarray:
    """Return A_ij α_j, from j to i, for one head or averaged over all heads, (N, N).

    Since Aα = α and the columns of A sum to one, each row and each column sums to the
    weight of its node.
    """
    shown = resolve_head(graph, head)
    heads = range(len(graph.heads)) if shown is None else [shown]
    return np.mean(
        [graph.edges(index) * np.array(graph.heads[index].weights) for index in heads],
        axis=0,
    )


def strongest_flows(matrix: np.ndarray, per_node: float = 3.0) -> list[Flow]:
    """Return the strongest flows between different nodes, in descending order.

    Args:
        matrix: Flows or edges, from j to i.
        per_node: Number of flows per node, on average.
    """
    off_diagonal = matrix.copy()
    np.fill_diagonal(off_diagonal, 0)
    order = np.argsort(-off_diagonal, axis=None, kind="stable")
    return _nonzero_flows(off_diagonal, order[: round(per_node * len(matrix))])


def incoming(matrix: np.ndarray, node: int, count: int) -> list[Flow]:
    """Return the strongest flows into a node, possibly including one from itself."""
    order = np.argsort(-matrix[node], kind="stable")[:count]
    return _nonzero_flows(matrix, node * len(matrix) + order)


def outgoing(matrix: np.ndarray, node: int, count: int) -> list[Flow]:
    """Return the strongest flows out of a node, possibly including one to itself."""
    order = np.argsort(-matrix[:, node], kind="stable")[:count]
    return _nonzero_flows(matrix, order * len(matrix) + node)


def _nonzero_flows(matrix: np.ndarray, indices: np.ndarray) -> list[Flow]:
    """Return the nonzero flows at these indices of the flattened matrix."""
    targets, sources = np.unravel_index(indices, matrix.shape)
    pairs = zip(sources.tolist(), targets.tolist(), strict=True)
    flows = [Flow(j, i, float(matrix[i, j])) for j, i in pairs]
    return [flow for flow in flows if flow.share > 0]


NO_WORDS = "no words"
TRUNCATED = "… (not read by the model)"

# Characters that XML does not allow or that control a terminal, and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_MAX_LISTED = 4  # words in a summary, and sources or targets of a word


def printable(text: str) -> str:
    """Return the text on one line, with � in place of unprintable characters."""
    return _UNPRINTABLE.sub("�", " ".join(text.split()))


def percent(share: float) -> str:
    """Format a share as 31 %, 3.1 % or 0.3 %."""
    return f"{100 * share:.{0 if share >= 0.0995 else 1}f} %"


def prediction_text(record: Explanation) -> str:
    """Return the predicted label and its probability."""
    probability = f"{100 * record.probabilities[record.label]:.1f} %"
    return f"{printable(record.label)} {probability}"


def model_text(record: Explanation, head: int | None = None) -> str:
    """Return the name, encoder and aggregator of the model."""
    model = record.model
    parts = [model.encoder, model.aggregator]
    if head is not None:
        parts.append(f"head {head}")
    return f"{printable(model.name)} ({', '.join(parts)})"


def summary(record: Explanation, head: int | None = None) -> str:
    """Return the words with the largest weights in each text, for screen readers."""
    parts = []
    for graph in record.words:
        nodes = [printable(node) for node in graph.nodes]
        weights = node_weights(graph, head)
        if weights is None or not nodes:
            parts.append(" ".join(nodes) or NO_WORDS)
            continue
        order = sorted(range(len(nodes)), key=lambda node: -weights[node])
        parts.append(
            ", ".join(
                f"{nodes[node]} {percent(weights[node])}"
                for node in order[:_MAX_LISTED]
            )
        )
    return ". ".join(parts or [NO_WORDS]) + "."


def describe_node(
    nodes: Sequence[str],
    node: int,
    weight: float | None,
    matrix: np.ndarray | None = None,
) -> str:
    """Return the weight of a node and its strongest sources and targets, as text.

    The percentages of the sources and targets are relative to the weight of the node.

    Args:
        nodes: Names of all nodes.
        node: Index of the node.
        weight: Weight of the node. None without weights.
        matrix: Flows between the nodes. None without a graph.
    """
    text = printable(nodes[node])
    if weight is None:
        return text
    text += f": {percent(weight)}"
    if matrix is None or not weight:
        return text

    def join(neighbors: Iterable[tuple[int, float]]) -> str:
        return ", ".join(
            f"{'itself' if other == node else printable(nodes[other])} "
            f"{percent(share / weight)}"
            for other, share in neighbors
        )

    flows = incoming(matrix, node, _MAX_LISTED), outgoing(matrix, node, _MAX_LISTED)
    sources = join((flow.source, flow.share) for flow in flows[0])
    targets = join((flow.target, flow.share) for flow in flows[1])
    return f"{text}. Incoming: {sources}. Outgoing: {targets}."


STEPS = 12  # the shade of a word is from 0 to STEPS
LEVELS = 9  # the level of an arc is from 0 to LEVELS

Color = tuple[int, int, int]


class Palette(NamedTuple):
    """Colors of a theme. Text on any shade has a contrast ratio of at least 4.5."""

    paper: Color  # background
    full: Color  # words of at least three times the mean weight
    ink: Color  # text
    muted: Color  # secondary text
    border: Color  # border of a tile
    arc: Color
    incoming: Color
    outgoing: Color

    def shade(self, step: int) -> Color:
        """Return the color of a word, from ``paper`` to ``full``."""
        return mix(self.paper, self.full, step / STEPS)


LIGHT = Palette(
    paper=(255, 255, 255),
    full=(226, 112, 38),
    ink=(28, 28, 30),
    muted=(95, 99, 104),
    border=(224, 222, 218),
    arc=(52, 73, 109),
    incoming=(163, 71, 10),  # this and outgoing are the same in graph.css
    outgoing=(31, 95, 174),
)
DARK = Palette(
    paper=(24, 25, 29),
    full=(168, 70, 12),
    ink=(244, 243, 240),
    muted=(168, 171, 178),
    border=(62, 63, 68),
    arc=(150, 174, 216),
    incoming=(242, 163, 102),
    outgoing=(141, 184, 238),
)


def color_strength(weight: float, count: int) -> float:
    """Return how strongly to color a word, from 0 to 1.

    The result is proportional to the weight: 1/3 at the mean weight, and 1 at three
    times the mean weight or more.

    Args:
        weight: Weight of the word.
        count: Number of words in the text.
    """
    return min(1.0, weight * count / 3)


def mix(first: Color, second: Color, amount: float) -> Color:
    """Interpolate between two colors."""
    red, green, blue = (
        round(a + amount * (b - a)) for a, b in zip(first, second, strict=True)
    )
    return red, green, blue


def arc_opacity(level: int) -> float:
    """Return the opacity of arcs of a level."""
    return round(0.1 + 0.75 * level / LEVELS, 2)


def arc_width(level: int) -> float:
    """Return the line width of arcs of a level."""
    return round(0.8 + 1.2 * level / LEVELS, 2)


def to_hex(color: Color) -> str:
    """Return the color as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*color)
