"""Before the first step: data, vocabulary, word vectors, model."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from perron.data.batches import Examples
from perron.data.ids import WordIds
from perron.data.load import Splits, load_data
from perron.data.vectors import (
    Coverage,
    WordVectors,
    coverage,
    embedding_matrix,
    read_vectors,
    wanted_words,
)
from perron.data.vocabulary import choose_vocabulary, dataset_counts
from perron.data.words import UNKNOWN, WordTokenizer
from perron.models import Classifier, ModelConfig, build_model
from perron.training.settings import Recipe

# Called with a source of word vectors, bytes done, and bytes in all.
VectorProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Prepared:
    """All that the loop needs.

    Attributes:
        recipe: with the settings that the data decided.
        splits: the texts.
        train: to learn from.
        dev: chooses the best epoch.
        test: for the end; may be missing.
        word_ids: how the texts became ids.
        model: with the word vectors in it, otherwise random.
        coverage: of each source of word vectors.
        skipped_vectors: bad rows left out of each source.
        fingerprint: of data and vocabulary; a checkpoint belongs to one.
    """

    recipe: Recipe
    splits: Splits
    train: Examples
    dev: Examples
    test: Examples | None
    word_ids: WordIds
    model: Classifier
    coverage: dict[str, Coverage]
    skipped_vectors: dict[str, int]
    fingerprint: str


def prepare(
    recipe: Recipe, root: Path | None = None, progress: VectorProgress | None = None
) -> Prepared:
    """Read everything and build the model; the seed decides its random weights.

    Args:
        recipe: what to train.
        root: folder of the datasets.
        progress: told about the reading of word vectors.
    """
    data, text = recipe.data, recipe.text
    splits = load_data(data, root)
    counts = dataset_counts(splits.train, text.case, data)
    vocabulary = choose_vocabulary(counts, text.min_count)
    sources = _read_sources(recipe, vocabulary, progress)
    others = _other_words(recipe, sources)
    vocabulary = choose_vocabulary(counts, text.min_count, others)
    word_ids = WordIds(
        WordTokenizer.of_words(vocabulary, text.case),
        recipe.model.kind,
        text.max_words,
        text.max_sentences,
        data.tokenised,
        data.sentence_mark,
    )
    encoded = [
        None if rows is None else word_ids.encode_dataset(rows)
        for rows in (splits.train, splits.dev, splits.test)
    ]
    train, dev, test = (None if rows is None else Examples(rows) for rows in encoded)
    assert train is not None
    assert dev is not None
    recipe = _with_width(recipe, sources)
    known = {word: counts[word] for word in vocabulary if word in counts}
    return Prepared(
        recipe,
        splits,
        train,
        dev,
        test,
        word_ids,
        _model(recipe, splits.labels, vocabulary, sources),
        {name: coverage(table, known) for name, table in sources.items()},
        {name: table.skipped for name, table in sources.items()},
        _fingerprint(encoded, vocabulary),
    )


def _read_sources(
    recipe: Recipe, vocabulary: Sequence[str], progress: VectorProgress | None
) -> dict[str, WordVectors]:
    wanted = wanted_words(vocabulary) - {UNKNOWN}
    sources = {}
    for name in recipe.vectors:
        report = None if progress is None else _about(progress, name)
        sources[name] = read_vectors(
            name,
            wanted,
            first=recipe.text.vector_words,
            skip_bad=recipe.data.skip_bad,
            progress=report,
        )
    return sources


def _about(progress: VectorProgress, name: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(name, done, total)


def _other_words(recipe: Recipe, sources: dict[str, WordVectors]) -> list[str]:
    """Return the frequent words of the sources, as far as texts can have them."""
    count = recipe.text.vector_words
    words = [word for table in sources.values() for word in table.words[:count]]
    if recipe.text.case == "lower":
        words = [word for word in words if word == word.lower()]
    return words


def _with_width(recipe: Recipe, sources: dict[str, WordVectors]) -> Recipe:
    """Return the recipe with the width that the word vectors have."""
    if not sources:
        return recipe
    width = sum(table.dim for table in sources.values())
    embedding = recipe.model.embedding.model_copy(update={"dim": width})
    model = recipe.model.model_copy(update={"embedding": embedding})
    return recipe.model_copy(update={"model": model})


def _model(
    recipe: Recipe,
    labels: tuple[str, ...],
    vocabulary: Sequence[str],
    sources: dict[str, WordVectors],
) -> Classifier:
    torch.manual_seed(recipe.training.seed)
    config = ModelConfig(
        settings=recipe.model,
        vocabulary=len(vocabulary),
        labels=labels,
        max_words=recipe.text.max_words,
        max_sentences=recipe.text.max_sentences,
    )
    model = build_model(config)
    if sources:
        seed = recipe.training.seed
        matrix, _ = embedding_matrix(vocabulary, list(sources.values()), seed=seed)
        model.embedding.set_vectors(torch.from_numpy(matrix))
    return model


def _fingerprint(datasets: Sequence[object], vocabulary: Sequence[str]) -> str:
    prints = [getattr(rows, "_fingerprint", "") for rows in datasets]
    told = "\n".join([*prints, *vocabulary])
    return hashlib.sha256(told.encode()).hexdigest()
