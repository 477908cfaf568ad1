"""Before the first step: data, vocabulary, word vectors, model."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from datasets import Dataset

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
from perron.data.words import UNKNOWN, TextTokenizer, WordTokenizer
from perron.models import Classifier, ModelConfig, build_model
from perron.models.settings import HuggingFaceSettings
from perron.training.pretrained import Pretrained, read_pretrained
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
    if isinstance(recipe.model.encoder, HuggingFaceSettings):
        lexicon = _pretrained_lexicon(recipe.model.encoder.model, text.max_words)
    else:
        lexicon = _lexicon_of(recipe, splits.train, progress)
    word_ids = WordIds(
        lexicon.tokenizer,
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
    if lexicon.width is not None:
        recipe = with_width(recipe, lexicon.width)
    sources = lexicon.sources
    return Prepared(
        recipe,
        splits,
        train,
        dev,
        test,
        word_ids,
        _model(recipe, splits.labels, lexicon),
        {name: coverage(table, lexicon.counts) for name, table in sources.items()},
        {name: table.skipped for name, table in sources.items()},
    )


@dataclass(frozen=True)
class _Lexicon:
    """The words of a model, and where their vectors come from.

    Attributes:
        tokenizer: knows the words.
        width: of the vectors, if they come from somewhere.
        sources: of word vectors.
        counts: how often each word of the vocabulary is in the training texts.
        pretrained: the model whose words and vectors these are.
    """

    tokenizer: TextTokenizer
    width: int | None
    sources: dict[str, WordVectors] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    pretrained: Pretrained | None = None


def _pretrained_lexicon(name: str, max_words: int) -> _Lexicon:
    found = read_pretrained(name, max_words)
    return _Lexicon(found.tokenizer, found.vectors.shape[1], pretrained=found)


def _lexicon_of(
    recipe: Recipe, texts: Dataset, progress: VectorProgress | None
) -> _Lexicon:
    """Choose the words of the training texts, and read their vectors."""
    text = recipe.text
    counts = dataset_counts(texts, text.case, recipe.data)
    vocabulary = choose_vocabulary(counts, text.min_count)
    sources = _read_sources(recipe, vocabulary, progress)
    others = _other_words(recipe, sources)
    vocabulary = choose_vocabulary(counts, text.min_count, others)
    return _Lexicon(
        WordTokenizer.of_words(vocabulary, text.case),
        sum(table.dim for table in sources.values()) if sources else None,
        sources,
        {word: counts[word] for word in vocabulary if word in counts},
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


def _model(recipe: Recipe, labels: tuple[str, ...], lexicon: _Lexicon) -> Classifier:
    seed, pretrained = recipe.training.seed, lexicon.pretrained
    words = lexicon.tokenizer.words
    torch.manual_seed(seed)
    config = ModelConfig(
        settings=recipe.model,
        vocabulary=len(words) if pretrained is None else len(pretrained.vectors),
        labels=labels,
        max_words=recipe.text.max_words,
        max_sentences=recipe.text.max_sentences,
        pretrained=None if pretrained is None else pretrained.config,
    )
    model = build_model(config)
    if pretrained is not None:
        pretrained.fill(model)
    elif lexicon.sources:
        sources = list(lexicon.sources.values())
        matrix, _ = embedding_matrix(words, sources, seed=seed)
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
