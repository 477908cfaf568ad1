"""Is a trained word graph more than self-attention?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from perron.text.batches import Examples, batches_in_order

MOST_TEXTS = 1000  # looked at: eigenvalues take time, and means need no more
LONGEST = 500  # words: a longer text's graph takes too much room and time
_BATCH = 64
# What each of a model's poolings pools.
_LEVELS = {
    "text": ("words",),
    "document": ("words", "sentences"),
    "pair": ("words of the first text", "words of the second text"),
}


@dataclass(frozen=True)
class GraphMeasure:
    """Two numbers about the graphs of one of a model's poolings, means over texts.

    Both are zero if every word has the same opinion, A_ij = g(h_i), which makes
    centrality the same as self-attention.

    Attributes:
        level: what is pooled.
        texts: that were looked at; of the words of documents, sentences. None has less
            than two words.
        context_dependence: how much an edge into a word depends on where it comes from:
            the standard deviation of A_ij over the sources j as a share of their mean,
            averaged over the words i, each with the weight of that mean.
        second_eigenvalue: the second largest |λ| of A. The largest is 1.
    """

    level: str
    texts: int
    context_dependence: float
    second_eigenvalue: float


def measure_graphs(
    model: Any,
    examples: Examples,
    device: torch.device | str = "cpu",
    most: int = MOST_TEXTS,
) -> list[GraphMeasure]:
    """Measure the word graphs of some examples; nothing for models without graphs.

    Args:
        model: a classifier.
        examples: some, evenly spread, are looked at; none of more than `LONGEST` words,
            but for documents, whose graphs are those of sentences.
        device: of the model.
        most: how many at the most.
    """
    found: dict[int, list[np.ndarray]] = {}
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for batch in _spread(examples, most):
            classified = model(**batch.to(device).inputs, need_edges=True)
            for level, pooled in enumerate(classified.pooled):
                if pooled.head_edges is not None:
                    found.setdefault(level, []).append(_measured(pooled.head_edges))
    model.train(was_training)
    names = _LEVELS[model.kind]
    return [
        GraphMeasure(names[level], len(values), *values.mean(0).tolist())
        for level, rows in sorted(found.items())
        if len(values := np.concatenate(rows))
    ]


def _spread(examples: Examples, most: int) -> Iterator[Any]:
    short = np.flatnonzero(examples.is_document | (examples.sizes <= LONGEST))
    chosen = short[:: max(1, -(-len(short) // most))]
    for rows in batches_in_order(examples.sizes[chosen], _BATCH):
        yield examples.batch(chosen[rows])


def _measured(edges: Float[Tensor, "b h n n"]) -> Float[np.ndarray, "texts 2"]:
    """Return both numbers, means over the heads, for each text of two words or more."""
    graphs = edges.cpu().double()
    counts = (graphs[:, 0].sum(-2) > 0.5).sum(-1)  # columns of words sum to one
    graphs, counts = graphs[counts > 1], counts[counts > 1]
    if not len(graphs):
        return np.empty((0, 2))
    # Over j; entries of padding are zero, and so add nothing to the sums.
    number = counts[:, None, None]
    mean = graphs.sum(-1) / number
    square = (graphs.square().sum(-1) / number - mean.square()).clamp(min=0)
    dependence = square.sqrt().sum(-1)  # Σ_i mean_i (deviation_i / mean_i)
    # Padding adds eigenvalues that are zero.
    sizes = torch.linalg.eigvals(graphs).abs().sort(-1, descending=True).values
    return torch.stack([dependence.mean(1), sizes[..., 1].mean(1)], -1).numpy()
