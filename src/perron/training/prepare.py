"""Before the first step: data, vocabulary, word vectors, model."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
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

HASHED = 1000  # examples that are hashed together


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
        fingerprint: of ids, labels and vocabulary; a checkpoint belongs to one.
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
    train = Examples(word_ids.encode_dataset(splits.train))
    dev = Examples(word_ids.encode_dataset(splits.dev))
    test = None
    if splits.test is not None:
        test = Examples(word_ids.encode_dataset(splits.test))
    if sources:
        recipe = with_width(recipe, sum(table.dim for table in sources.values()))
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
        _fingerprint([train, dev, test], [*vocabulary, *splits.labels]),
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


def with_width(recipe: Recipe, width: int) -> Recipe:
    """Return the recipe with the width that the word vectors have."""
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


def _fingerprint(parts: Iterable[Examples | None], names: Sequence[str]) -> str:
    """Hash what is learnt from; where the cache keeps it, and since when, is not."""
    told = hashlib.sha256("\n".join(names).encode())
    for examples in parts:
        if examples is None:
            continue
        for begin in range(0, len(examples), HASHED):
            rows = range(begin, min(begin + HASHED, len(examples)))
            batch = examples.batch(rows)
            for tensor in (*batch.inputs.values(), batch.labels):
                told.update(tensor.numpy().tobytes())
    return told.hexdigest()
