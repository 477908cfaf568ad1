"""From settings and texts to data and a model, before the first step."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from datasets import Dataset

from perron.files import digest
from perron.models import Classifier, ModelConfig, ModelSettings, build_model
from perron.models.config import HuggingFaceSettings
from perron.text.batches import Examples
from perron.text.datasets import Splits, load_data
from perron.text.encoding import TextSettings, WordIds
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
    """Data and model of a run before training.

    Attributes:
        recipe: Settings, with those that the data decided.
        splits: The texts.
        train: Examples to learn from.
        dev: Examples that choose the best epoch.
        test: Examples for the end; None if there are none.
        word_ids: Turned the texts into ids.
        model: Has the word vectors; otherwise its weights are random.
        coverage: Number of words that each source of word vectors has.
        skipped_vectors: Number of bad rows left out of each source.
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
        """Hash of ids, labels and vocabulary; a checkpoint belongs to one."""
        parts = [self.train, self.dev, self.test]
        return _fingerprint(
            parts, [*self.word_ids.tokenizer.words, *self.splits.labels]
        )


def prepare(
    recipe: Recipe, root: Path | None = None, progress: VectorProgress | None = None
) -> Prepared:
    """Read everything and build the model; the seed decides its random weights.

    Args:
        recipe: Settings of the run.
        root: Folder of the datasets.
        progress: Called while word vectors are read.
    """
    data = recipe.data
    splits = load_data(data, root)
    built = build_classifier(
        recipe.model,
        recipe.text,
        splits.labels,
        recipe.training.seed,
        count=lambda: dataset_counts(splits.train, recipe.text.case, data),
        vectors=recipe.vectors,
        vector_spread=recipe.vector_spread,
        skip_bad=data.skip_bad,
        progress=progress,
    )
    word_ids = built.word_ids.reading(data.tokenised, data.sentence_mark)

    def encoded(rows: Dataset) -> Examples:
        return Examples(word_ids.encode_dataset(rows))

    return Prepared(
        recipe.model_copy(update={"model": built.model.config.settings}),
        splits,
        encoded(splits.train),
        encoded(splits.dev),
        None if splits.test is None else encoded(splits.test),
        word_ids,
        built.model,
        built.coverage,
        built.skipped_vectors,
    )


class BuiltClassifier(NamedTuple):
    """A classifier before training.

    Attributes:
        model: Has the given word vectors, or the weights of a pretrained encoder;
            otherwise its weights are random.
        word_ids: Turns texts into the ids that it reads.
        coverage: Number of words that each source of word vectors has.
        skipped_vectors: Number of bad rows left out of each source.
    """

    model: Classifier
    word_ids: WordIds
    coverage: dict[str, Coverage]
    skipped_vectors: dict[str, int]


def build_classifier(
    settings: ModelSettings,
    text: TextSettings,
    labels: Sequence[str],
    seed: int,
    *,
    count: Callable[[], Mapping[str, int]],
    vectors: Sequence[str] = (),
    vector_spread: float | None = None,
    skip_bad: bool = False,
    progress: VectorProgress | None = None,
) -> BuiltClassifier:
    """Build a classifier for texts: vocabulary, word vectors or pretrained encoder.

    Args:
        settings: The parts of the model. The width of its embedding is that of word
            vectors, where there are some.
        text: How texts become words.
        labels: Names of the classes.
        seed: Random seed of the weights.
        count: Returns how often each word occurs in the training texts. Is not called
            for a pretrained encoder, which has a vocabulary of its own.
        vectors: Sources of word vectors, which are concatenated.
        vector_spread: Standard deviation that each source is scaled to.
        skip_bad: Leave out rows of word vectors that cannot be read.
        progress: Called while word vectors are read.
    """
    encoder = settings.encoder
    start: Lexicon | Pretrained
    if isinstance(encoder, HuggingFaceSettings):
        start = read_pretrained(encoder.model, text.max_words, encoder.marks)
    else:
        start = choose_lexicon(count(), text, vectors, skip_bad, progress)
    if start.width is not None:
        settings = with_width(settings, start.width)
    config = ModelConfig(
        settings=settings,
        vocabulary=len(start.words if isinstance(start, Lexicon) else start.vectors),
        labels=tuple(labels),
        max_words=text.max_words,
        max_sentences=text.max_sentences,
        pretrained=start.config if isinstance(start, Pretrained) else None,
    )
    torch.manual_seed(seed)
    model = build_model(config)
    sizes = text.max_words, text.max_sentences
    word_ids = WordIds(start.tokenizer, settings.kind, *sizes)
    if isinstance(start, Pretrained):
        start.fill(model)
        return BuiltClassifier(model, word_ids, {}, {})
    if start.sources:
        matrix = start.matrix(seed, vector_spread)
        model.embedding.set_vectors(torch.from_numpy(matrix))
    return BuiltClassifier(model, word_ids, start.coverage(), start.skipped())


def with_width(settings: ModelSettings, width: int) -> ModelSettings:
    """Return the settings of a model with the width that its word vectors have."""
    embedding = settings.embedding.model_copy(update={"dim": width})
    return settings.model_copy(update={"embedding": embedding})


def _fingerprint(parts: Iterable[Examples | None], names: Sequence[str]) -> str:
    """Hash the content of examples, independent of where the cache keeps it."""

    def content() -> Iterator[bytes]:
        yield "\n".join(names).encode()
        for examples in parts:
            if examples is None:
                continue
            for begin in range(0, len(examples), HASHED):
                rows = range(begin, min(begin + HASHED, len(examples)))
                batch = examples.batch(rows)
                for tensor in (*batch.inputs.values(), batch.labels):
                    yield tensor.numpy().tobytes()

    return digest(content())
