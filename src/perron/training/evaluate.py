"""Evaluation of models and of their word graphs on held-out examples."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pydantic import ValidationError
from torch import Tensor

from perron.errors import DataError, SettingsError
from perron.models.config import problems
from perron.pipeline import Pipeline, pair_mismatch
from perron.text.batches import Examples, batches_in_order
from perron.text.datasets import PARTS, load_data, load_split
from perron.text.formats import formats
from perron.text.settings import DataSettings
from perron.training.metrics import Evaluation
from perron.training.recipe import read_settings

EVALUATION_BATCH = 128


def evaluate(
    model: Any,
    examples: Examples,
    device: torch.device | str = "cpu",
    rank: int = 0,
    world: int = 1,
) -> Evaluation:
    """Classify all examples.

    Args:
        model: A classifier.
        examples: Labeled examples.
        device: Device of the model.
        rank: Number of this process, which evaluates every ``world``-th batch.
        world: Number of processes that evaluate together; each gets all predictions.
    """
    found = np.zeros((len(examples), len(model.config.labels)))
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for number, rows in enumerate(
            batches_in_order(examples.sizes, EVALUATION_BATCH)
        ):
            if number % world != rank:
                continue
            batch = examples.batch(rows).to(device)
            # In float64, so that two classes tie only if their logits are equal.
            logits = model(**batch.inputs).logits.cpu().double()
            found[rows] = logits.log_softmax(-1).numpy()
    model.train(was_training)
    if world > 1:
        # Every example was classified by one process and is zero in the others.
        found = _summed(found, device)
    return Evaluation(examples.labels, found, examples.weights)


def _summed(values: np.ndarray, device: torch.device | str) -> np.ndarray:
    tensor = torch.from_numpy(values).to(device)
    torch.distributed.all_reduce(tensor)
    return tensor.cpu().numpy()


def held_out_examples(
    pipeline: Pipeline, folder: Path, part: str, root: Path | None = None
) -> Examples:
    """Return a part of the data that the model in a folder was trained with."""
    if part not in PARTS:
        raise SettingsError(f"--part {part}: is one of {', '.join(PARTS)}")
    settings = read_settings(folder).data
    splits = load_data(settings, root)
    if splits.labels != pipeline.labels:
        raise DataError("the classes in its data have changed; give --data", folder)
    rows = getattr(splits, part)
    if rows is None:
        raise SettingsError(f"{folder}: was trained without {part} data; give --data")
    return _examples(pipeline, rows, settings)


def other_examples(
    pipeline: Pipeline, table: Mapping[str, Any], part: str, root: Path | None = None
) -> Examples:
    """Return other data for a model, with the labels that the model knows.

    Args:
        pipeline: the model.
        table: settings of the data; a file is read whole, it is their ``train``.
        part: what is read of data that are no file: a split of the hub, or train, dev
            or test of packaged data.
        root: folder of the datasets.
    """
    try:
        settings = DataSettings.model_validate(table)
    except ValidationError as error:
        raise SettingsError(problems(error)[0]) from error
    is_pair = settings.text_pair is not None
    if is_pair != (pipeline.word_ids.kind == "pair"):
        fix = "Leave out --text-pair." if is_pair else "Add --text-pair COLUMN."
        raise SettingsError(pair_mismatch(not is_pair, fix))
    is_file = formats[settings.format].location == "file"
    name = str(settings.train) if is_file else part
    rows = load_split(settings, name, pipeline.labels, root).rows
    return _examples(pipeline, rows, settings)


def _examples(pipeline: Pipeline, rows: Any, settings: DataSettings) -> Examples:
    word_ids = pipeline.word_ids.reading(settings.tokenised, settings.sentence_mark)
    return Examples(word_ids.encode_dataset(rows))


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
