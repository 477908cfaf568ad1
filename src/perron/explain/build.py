"""Explanations from a model and a text."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from perron.explain.records import Explanation, Graph, Head, ModelInfo, Solver
from perron.models import Classifier, ClassifierOutput
from perron.pooling import PoolingOutput
from perron.text.encoding import Found, TextProcessor
from perron.text.sampling import inputs_of
from perron.text.tokenizers import Word


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


Place = tuple[int, int]


def explain(
    model: Classifier,
    processor: TextProcessor,
    text: str,
    pair: str | None = None,
    name: str = "model",
) -> Explanation:
    """Classify one text and keep everything that was found on the way."""
    found = processor.find_words(text, pair)
    device = next(model.parameters()).device
    inputs = {
        column: tensor.to(device)
        for column, tensor in inputs_of([_row(processor.kind, found)]).items()
    }
    model.eval()
    with torch.inference_mode():
        result: ClassifierOutput = model(**inputs, need_edges=True)
    shares = result.logits.float().softmax(-1)[0].tolist()
    config = model.config
    settings = config.settings
    words, sentences = _graphs(processor.kind, text, pair, found, result.pooled)
    return Explanation(
        ModelInfo(name, settings.kind, settings.encoder.name, settings.aggregator.name),
        text,
        pair,
        config.labels[shares.index(max(shares))],
        dict(zip(config.labels, shares, strict=True)),
        words,
        sentences,
    )


def _row(kind: str, found: Found) -> dict[str, list[int]]:
    ids = [[word.id for word in part.words] for part in found.parts]
    if kind == "document":
        flat = [row for inside in ids for row in inside]
        return {"ids": flat, "lengths": [len(inside) for inside in ids]}
    if kind == "pair":
        return {"ids": ids[0], "pair_ids": ids[1]}
    return {"ids": ids[0]}


def _graphs(
    kind: str,
    text: str,
    pair: str | None,
    found: Found,
    pooled: tuple[PoolingOutput, ...],
) -> tuple[list[Graph], Graph | None]:
    """Return the graphs of the words, and of a document's sentences."""
    words, start = [], 0
    for row, part in enumerate(found.parts):
        # The sentences of a document were pooled together, the texts of a pair apart.
        together = kind == "document"
        source = text if row == 0 or together else str(pair)
        nodes, spans, groups = _whole_words(part.words, source)
        words.append(
            _graph(
                nodes,
                spans,
                pooled[0 if together else row],
                row if together else 0,
                start if together else 0,
                part.truncated,
                groups,
            )
        )
        start += len(part.words)
    if kind != "document":
        return words, None
    spans = [(part.words[0].start, part.words[-1].end) for part in found.parts]
    nodes = [text[begin:end] for begin, end in spans]
    return words, _graph(
        nodes, spans, pooled[1], 0, 0, found.truncated, np.arange(len(nodes))
    )


def _whole_words(
    pieces: list[Word], source: str
) -> tuple[list[str], list[Place], np.ndarray]:
    """Return words, their spans, and the word that each piece belongs to."""
    starts = group_starts([piece.goes_on for piece in pieces])
    limits = [*starts, len(pieces)]
    spans = [
        (pieces[first].start, pieces[end - 1].end) for first, end in pairwise(limits)
    ]
    # A mark such as [CLS] is not in the text: it has a name of its own.
    nodes = [
        source[begin:end] or pieces[first].text
        for first, (begin, end) in zip(starts, spans, strict=True)
    ]
    return nodes, spans, np.repeat(np.arange(len(starts)), np.diff(limits))


def _graph(
    nodes: list[str],
    spans: list[Place],
    pooled: PoolingOutput,
    text: int,
    start: int,
    truncated: bool,
    groups: np.ndarray,
) -> Graph:
    """Cut one text out of flat weights and padded edges; merge pieces of words."""
    if pooled.head_weights is None:
        return Graph(nodes, spans, None, [], truncated)
    inside = slice(start, start + len(groups))
    heads = [
        _head(pooled, _shares(weights[inside]), text, head, groups)
        for head, weights in enumerate(pooled.head_weights)
    ]
    # Not the model's own mean, where weights of unit length count for different sums.
    mean = np.mean([head.weights for head in heads], axis=0).tolist()
    return Graph(nodes, spans, mean, heads, truncated)


def _head(
    pooled: PoolingOutput, weights: np.ndarray, text: int, head: int, groups: np.ndarray
) -> Head:
    shares = merged_weights(weights, groups).tolist()
    if pooled.head_edges is None:
        return Head(shares)
    count = len(weights)
    edges = pooled.head_edges[text, head, :count, :count].double().cpu().numpy()
    solver = Solver("direct", _residual(edges, weights))
    if pooled.solver_info is not None:
        solver = Solver(
            "power",
            solver.residual,
            int(pooled.solver_info.iterations[text, head]),
            bool(pooled.solver_info.converged[text, head]),
        )
    edges = merged_edges(edges, weights, groups)
    return Head(shares, _in_seven_digits(edges).tolist(), solver)


def _shares(weights: Float[Tensor, " n"]) -> np.ndarray:
    """Let them sum to one, which weights of unit length (``norm="l2"``) do not."""
    exact = weights.double()
    return (exact / exact.sum()).cpu().numpy()


def _residual(edges: np.ndarray, weights: np.ndarray) -> float:
    if not len(weights):
        return 0.0
    return float(np.linalg.norm(edges @ weights - weights) / np.linalg.norm(weights))


def _in_seven_digits(numbers: np.ndarray) -> np.ndarray:
    """Return what float32 knows of each number, so that JSON is short.

    An integer over a power of ten is the double nearest to a short decimal, as long as
    the power itself is exact, up to 10²². Smaller numbers are left as they are.
    """
    with np.errstate(divide="ignore"):
        exponent = 6 - np.floor(np.log10(numbers))
    power = 10.0 ** np.clip(exponent, 0, 22)
    return np.where(exponent <= 22, np.rint(numbers * power) / power, numbers)
