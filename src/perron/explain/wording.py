"""What the views of a graph say in words."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from perron.explain.flow import incoming, outgoing, shares
from perron.explain.records import Explanation

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
