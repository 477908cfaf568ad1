"""Before the first step: data, vocabulary, word vectors, model."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from perron.models import Classifier, ModelConfig, build_model
from perron.models.config import HuggingFaceSettings
from perron.text.batches import Examples
from perron.text.datasets import Splits, load_data
from perron.text.encoding import WordIds
from perron.text.vectors import Coverage
from perron.text.vocabulary import (
    Lexicon,
    VectorProgress,
    choose_lexicon,
    dataset_counts,
)
from perron.training.pretrained import Pretrained, read_pretrained
from perron.training.recipe import Recipe

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

    @cached_property
    def fingerprint(self) -> str:
        """Of ids, labels and vocabulary; a checkpoint belongs to one."""
        parts = [self.train, self.dev, self.test]
        return _fingerprint(
            parts, [*self.word_ids.tokenizer.words, *self.splits.labels]
        )


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
    start: Lexicon | Pretrained
    encoder = recipe.model.encoder
    if isinstance(encoder, HuggingFaceSettings):
        start = read_pretrained(encoder.model, text.max_words, encoder.marks)
    else:
        counts = dataset_counts(splits.train, text.case, data)
        start = choose_lexicon(counts, text, recipe.vectors, data.skip_bad, progress)
    word_ids = WordIds(
        start.tokenizer,
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
    if start.width is not None:
        recipe = with_width(recipe, start.width)
    lexicon = start if isinstance(start, Lexicon) else None
    return Prepared(
        recipe,
        splits,
        train,
        dev,
        test,
        word_ids,
        _model(recipe, splits.labels, start),
        {} if lexicon is None else lexicon.coverage(),
        {} if lexicon is None else lexicon.skipped(),
    )


def with_width(recipe: Recipe, width: int) -> Recipe:
    """Return the recipe with the width that the word vectors have."""
    embedding = recipe.model.embedding.model_copy(update={"dim": width})
    model = recipe.model.model_copy(update={"embedding": embedding})
    return recipe.model_copy(update={"model": model})


def _model(
    recipe: Recipe, labels: tuple[str, ...], start: Lexicon | Pretrained
) -> Classifier:
    torch.manual_seed(recipe.training.seed)
    config = ModelConfig(
        settings=recipe.model,
        vocabulary=len(start.words if isinstance(start, Lexicon) else start.vectors),
        labels=labels,
        max_words=recipe.text.max_words,
        max_sentences=recipe.text.max_sentences,
        pretrained=start.config if isinstance(start, Pretrained) else None,
    )
    model = build_model(config)
    if isinstance(start, Pretrained):
        start.fill(model)
    elif start.sources:
        matrix = start.matrix(recipe.training.seed, recipe.vector_spread)
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
