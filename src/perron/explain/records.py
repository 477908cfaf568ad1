"""What a model saw in a text: words, what they weigh, and the graph between them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from perron.data.batches import inputs_of
from perron.data.ids import WordIds
from perron.data.words import Word
from perron.models import Classified, Classifier
from perron.pooling import Pooled


@dataclass(frozen=True)
class Graph:
    """Nodes in reading order: the words of a text, or the sentences of a document.

    Attributes:
        nodes: as they stand in the text.
        places: begin and end of each node in the text, in characters.
        weights: what share of the whole each weighs. None for an aggregator without.
        edges: ``edges[i][j]`` from node j to node i. None for an aggregator without.
    """

    nodes: list[str]
    places: list[tuple[int, int]]
    weights: list[float] | None
    edges: list[list[float]] | None


@dataclass(frozen=True)
class Explanation:
    """A prediction and what it rests on.

    Attributes:
        text: as it was given.
        pair: the second text, of a pair.
        label: of the most probable class.
        probabilities: of each class.
        words: a graph for the text; for both texts of a pair; for each sentence of a
            document.
        sentences: the graph between the sentences of a document.
    """

    text: str
    pair: str | None
    label: str
    probabilities: dict[str, float]
    words: list[Graph]
    sentences: Graph | None


def explain(
    model: Classifier, word_ids: WordIds, text: str, pair: str | None = None
) -> Explanation:
    """Classify one text and keep everything that was found on the way."""
    found = word_ids.find_words(text, pair)
    device = next(model.parameters()).device
    inputs = {
        name: tensor.to(device)
        for name, tensor in inputs_of([_row(word_ids.kind, found)]).items()
    }
    model.eval()
    with torch.inference_mode():
        result: Classified = model(**inputs, need_edges=True)
    shares = result.logits.float().softmax(-1)[0].tolist()
    labels = model.config.labels
    sentences = None
    if word_ids.kind == "document":
        words = _sentences_words(found, result.pooled[0])
        spans = [(inside[0].start, inside[-1].end) for inside in found]
        nodes = [text[start:end] for start, end in spans]
        sentences = _graph(nodes, spans, result.pooled[1], 0, 0)
    else:
        words = [
            _words_graph(inside, pooled, 0, 0)
            for inside, pooled in zip(found, result.pooled, strict=True)
        ]
    return Explanation(
        text,
        pair,
        labels[shares.index(max(shares))],
        dict(zip(labels, shares, strict=True)),
        words,
        sentences,
    )


def _row(kind: str, found: list[list[Word]]) -> dict[str, list[int]]:
    ids = [[word.id for word in words] for words in found]
    if kind == "document":
        flat = [row for inside in ids for row in inside]
        return {"ids": flat, "lengths": [len(inside) for inside in ids]}
    if kind == "pair":
        return {"ids": ids[0], "pair_ids": ids[1]}
    return {"ids": ids[0]}


def _sentences_words(found: list[list[Word]], pooled: Pooled) -> list[Graph]:
    graphs, start = [], 0
    for sentence, words in enumerate(found):
        graphs.append(_words_graph(words, pooled, sentence, start))
        start += len(words)
    return graphs


def _words_graph(words: list[Word], pooled: Pooled, text: int, start: int) -> Graph:
    places = [(word.start, word.end) for word in words]
    return _graph([word.text for word in words], places, pooled, text, start)


def _graph(
    nodes: list[str],
    places: list[tuple[int, int]],
    pooled: Pooled,
    text: int,
    start: int,
) -> Graph:
    """Cut one text out of flat weights and padded edges."""
    count = len(nodes)
    weights = edges = None
    if pooled.weights is not None:
        weights = _shares(pooled.weights[start : start + count])
    if pooled.edges is not None:
        edges = pooled.edges[text, :count, :count].tolist()
    return Graph(nodes, places, weights, edges)


def _shares(weights: Tensor) -> list[float]:
    """Let them sum to one, which weights of unit length (``norm="l2"``) do not."""
    exact = weights.double()
    return (exact / exact.sum()).tolist()
