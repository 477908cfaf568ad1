"""Computation of explanations from a model and a text."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from perron.explain.records import Explanation, Graph, Head, ModelInfo, Solver
from perron.models import Classifier, ClassifierOutput
from perron.pooling import PoolingOutput
from perron.text.encoding import TextProcessor, TokenizedText
from perron.text.sampling import collate
from perron.text.tokenizers import Token


def group_starts(is_continuation: Sequence[bool]) -> list[int]:
    """Return the index of the first node of each group.

    Args:
        is_continuation: For each node, whether it belongs to the group of the previous
            node.
    """
    return [
        index
        for index, continues in enumerate(is_continuation)
        if not continues or not index
    ]


def merge_weights(weights: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the weight of each group, α_I = Σ_{i∈I} α_i.

    Args:
        weights: Weights of the nodes, (N).
        groups: Group of each node, such as 0, 0, 1, 2, 2.
    """
    return _membership(groups) @ weights


def merge_edges(
    edges: np.ndarray, weights: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """Return the edges between groups, A_IJ = Σ_{i∈I, j∈J} A_ij α_j / α_J.

    This preserves the flows. The columns sum to one, and the merged weights are the
    stationary distribution of the merged graph:
    Σ_J A_IJ α_J = Σ_{i∈I} Σ_j A_ij α_j = α_I.
    If every group has a single node, the edges are returned unchanged.
    """
    members = _membership(groups)
    if len(members) == len(groups):
        return edges
    totals = members @ weights
    # In a group of total weight zero, all nodes count equally.
    shares = np.where((totals > 0)[groups], weights, 1.0)
    shares = shares / (members @ shares)[groups]
    return members @ (edges * shares) @ members.T


def _membership(groups: np.ndarray) -> np.ndarray:
    """Return the (groups, nodes) matrix that is one where a node is in a group."""
    count = int(groups[-1]) + 1 if len(groups) else 0
    return (np.arange(count)[:, None] == groups).astype(np.float64)


Span = tuple[int, int]


def explain(
    model: Classifier,
    processor: TextProcessor,
    text: str,
    pair: str | None = None,
    name: str = "model",
) -> Explanation:
    """Classify a text and return the prediction with its word graph.

    Args:
        model: Model to explain. It is set to evaluation mode.
        processor: Text processor of the model.
        text: Text to classify.
        pair: Second text, for pair models.
        name: Name of the model in the record.
    """
    tokenized = processor.tokenize(text, pair)
    device = next(model.parameters()).device
    batch = collate([_model_inputs(processor.kind, tokenized)])
    inputs = {column: tensor.to(device) for column, tensor in batch.items()}
    model.eval()
    with torch.inference_mode():
        result: ClassifierOutput = model(**inputs, need_edges=True)
    probabilities = result.logits.float().softmax(-1)[0].tolist()
    config = model.config
    settings = config.settings
    words, sentences = _graphs(processor.kind, text, pair, tokenized, result.pooled)
    return Explanation(
        ModelInfo(name, settings.kind, settings.encoder.name, settings.aggregator.name),
        text,
        pair,
        config.labels[probabilities.index(max(probabilities))],
        dict(zip(config.labels, probabilities, strict=True)),
        words,
        sentences,
    )


def _model_inputs(kind: str, tokenized: TokenizedText) -> dict[str, list[int]]:
    ids = [[token.id for token in sequence.tokens] for sequence in tokenized.sequences]
    if kind == "document":
        flat = [token_id for sentence in ids for token_id in sentence]
        return {"ids": flat, "lengths": [len(sentence) for sentence in ids]}
    if kind == "pair":
        return {"ids": ids[0], "pair_ids": ids[1]}
    return {"ids": ids[0]}


def _graphs(
    kind: str,
    text: str,
    pair: str | None,
    tokenized: TokenizedText,
    pooled: tuple[PoolingOutput, ...],
) -> tuple[list[Graph], Graph | None]:
    """Return the graphs over words and, for a document, the graph over sentences."""
    words, start = [], 0
    for row, sequence in enumerate(tokenized.sequences):
        # The sentences of a document are pooled in one batch, the texts of a pair
        # separately.
        is_document = kind == "document"
        source = text if row == 0 or is_document else str(pair)
        nodes, spans, groups = _merge_subwords(sequence.tokens, source)
        words.append(
            _graph(
                nodes,
                spans,
                pooled[0 if is_document else row],
                row if is_document else 0,
                start if is_document else 0,
                sequence.truncated,
                groups,
            )
        )
        start += len(sequence.tokens)
    if kind != "document":
        return words, None
    spans = [
        (sequence.tokens[0].start, sequence.tokens[-1].end)
        for sequence in tokenized.sequences
    ]
    nodes = [text[first:end] for first, end in spans]
    return words, _graph(
        nodes, spans, pooled[1], 0, 0, tokenized.truncated, np.arange(len(nodes))
    )


def _merge_subwords(
    tokens: list[Token], source: str
) -> tuple[list[str], list[Span], np.ndarray]:
    """Return the words, their spans, and the index of the word of each token."""
    starts = group_starts([token.is_continuation for token in tokens])
    limits = [*starts, len(tokens)]
    spans = [
        (tokens[first].start, tokens[end - 1].end) for first, end in pairwise(limits)
    ]
    # A special token such as [CLS] has an empty span; use the name of the token.
    nodes = [
        source[start:end] or tokens[first].text
        for first, (start, end) in zip(starts, spans, strict=True)
    ]
    return nodes, spans, np.repeat(np.arange(len(starts)), np.diff(limits))


def _graph(
    nodes: list[str],
    spans: list[Span],
    pooled: PoolingOutput,
    row: int,
    start: int,
    truncated: bool,
    groups: np.ndarray,
) -> Graph:
    """Extract the graph of one text from a batch, and merge subwords into words.

    Args:
        nodes: Words of the text.
        spans: Spans of the words.
        pooled: Output of the aggregator for the batch, with flat weights and padded
            edges.
        row: Index of the text in the batch.
        start: Index of the first token of the text in the flat weights.
        truncated: Whether the text is longer than the model reads.
        groups: Index of the word of each token.
    """
    if pooled.head_weights is None:
        return Graph(nodes, spans, None, [], truncated)
    columns = slice(start, start + len(groups))
    heads = [
        _head(pooled, _normalize(weights[columns]), row, head, groups)
        for head, weights in enumerate(pooled.head_weights)
    ]
    # Not the model's own mean: with norm="l2", its heads have different sums.
    mean = np.mean([head.weights for head in heads], axis=0).tolist()
    return Graph(nodes, spans, mean, heads, truncated)


def _head(
    pooled: PoolingOutput, weights: np.ndarray, row: int, head: int, groups: np.ndarray
) -> Head:
    merged_weights = merge_weights(weights, groups).tolist()
    if pooled.head_edges is None:
        return Head(merged_weights)
    count = len(weights)
    edges = pooled.head_edges[row, head, :count, :count].double().cpu().numpy()
    solver = Solver("direct", _residual(edges, weights))
    if pooled.solver_info is not None:
        solver = Solver(
            "power",
            solver.residual,
            int(pooled.solver_info.iterations[row, head]),
            bool(pooled.solver_info.converged[row, head]),
        )
    edges = merge_edges(edges, weights, groups)
    return Head(merged_weights, _round_to_seven_digits(edges).tolist(), solver)


def _normalize(weights: Float[Tensor, " n"]) -> np.ndarray:
    """Scale the weights to sum to one, which they do not with ``norm="l2"``."""
    exact = weights.double()
    return (exact / exact.sum()).cpu().numpy()


def _residual(edges: np.ndarray, weights: np.ndarray) -> float:
    if not len(weights):
        return 0.0
    return float(np.linalg.norm(edges @ weights - weights) / np.linalg.norm(weights))


def _round_to_seven_digits(numbers: np.ndarray) -> np.ndarray:
    """Round to the precision of float32, so that the JSON is short.

    An integer divided by a power of ten is the double closest to a short decimal if the
    power is exact, which is true up to 10²². Smaller numbers are not rounded.
    """
    with np.errstate(divide="ignore"):
        exponent = 6 - np.floor(np.log10(numbers))
    power = 10.0 ** np.clip(exponent, 0, 22)
    return np.where(exponent <= 22, np.rint(numbers * power) / power, numbers)
