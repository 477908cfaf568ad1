"""Random records of any size and with any text, without a model."""

from functools import partial

import numpy as np
from hypothesis import strategies as st

from perron.explain import Explanation, Graph, Head, ModelInfo, Solver

LINE = "the night was cold and the long road home went past a river where nobody "
PROSE = f"{LINE} had ever seen a boat , yet people spoke of them with warmth".split()
ANY_TEXT = st.text(st.characters(), max_size=8)  # control characters, lone surrogates
HARD = ["<b>&'\"", "$x$_1^{", "中文", "👩‍👧", "a\x00b\x1b[31m", "\ud800", "\\n", "]]>"]


def make_head(rng, count, edges=True):
    """Return a head with random edges and their stationary distribution, from NumPy."""
    scores = 0.6 * rng.normal(size=(count, count)) + rng.normal(size=(count, 1))
    matrix = np.exp(scores) / np.exp(scores).sum(0)
    if not count:
        return Head([], [] if edges else None, Solver("direct", 0.0) if edges else None)
    values, vectors = np.linalg.eig(matrix)
    vector = vectors[:, np.argmax(values.real)].real
    weights = (vector / vector.sum()).tolist()
    if not edges:
        return Head(weights)
    return Head(weights, matrix.tolist(), Solver("direct", 1e-7))


def graph(words, heads=1, edges=True, weights=True, truncated=False, seed=0):
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    spans = [
        (int(start), int(start) + len(word))
        for start, word in zip(starts[:-1], words, strict=True)
    ]
    if not weights:
        return Graph(list(words), spans, None, [], truncated)
    random_heads = [make_head(rng, len(words), edges) for _ in range(heads)]
    mean = np.mean([head.weights for head in random_heads], axis=0).tolist()
    return Graph(list(words), spans, mean, random_heads, truncated)


def record(kind, graphs, sentences=None, label="good", name="demo"):
    other = "other" if kind == "pair" else None
    model = ModelInfo(name, kind, "bilstm", "centrality")
    probabilities = {label: 0.75, "bad" if label != "bad" else "good": 0.25}
    return Explanation(model, "text", other, label, probabilities, graphs, sentences)


def text(words=tuple(PROSE[:8]), label="good", **options):
    return record("text", [graph(words, **options)], label=label)


def pair(first=tuple(PROSE[:8]), second=tuple(PROSE[8:11]), **options):
    return record("pair", [graph(first, **options), graph(second, seed=1, **options)])


def document(sentences=(("It", "was", "long", "."), ("Good", "!")), **options):
    graphs = [
        graph(words, seed=seed, **options) for seed, words in enumerate(sentences)
    ]
    nodes = [" ".join(words) for words in sentences]
    return record("document", graphs, graph(nodes, seed=9, **options))


@st.composite
def plans(draw, words=ANY_TEXT):
    """Draw a function that makes a record of any kind, with or without weights.

    The strategy does not make the record itself, because the runtime type checks use
    `random`, which Hypothesis does not allow while drawing.
    """
    options = {
        "heads": draw(st.integers(1, 3)),
        "edges": draw(st.booleans()),
        "weights": draw(st.booleans()),
        "truncated": draw(st.booleans()),
    }
    short = st.lists(words, max_size=5)
    kind = draw(st.sampled_from([text, pair, document]))
    if kind is text:
        return partial(text, draw(short), label=draw(words), **options)
    if kind is pair:
        return partial(pair, draw(short), draw(short), **options)
    sentences = draw(st.lists(st.lists(words, min_size=1, max_size=4), max_size=3))
    return partial(document, sentences, **options)


EVERY = {
    "text": text(),
    "pair": pair(heads=2),
    "document": document(heads=2, truncated=True),
    "empty": text([]),
    "empty document": document([]),
    "one word": text(["alone"]),
    "no edges": text(edges=False),
    "no weights": pair(weights=False),
    "no weights in a document": document(weights=False),
    "hard to escape": text(HARD, label="<i>&\x07"),
    "long word": text(["x" * 400, "y"]),
}
