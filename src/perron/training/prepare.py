"""From settings and texts to data and a model, before the first step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from datasets import Dataset
from pydantic import ValidationError

from perron.errors import DataError, SettingsError
from perron.files import digest
from perron.models import Classifier, ModelConfig, ModelSettings, build_model
from perron.models.config import HuggingFaceSettings, PretrainedEncoderConfig, problems
from perron.pipeline import Pipeline, pair_mismatch
from perron.text.datasets import PARTS, Splits, load_data, load_split
from perron.text.encoding import TextProcessor, TextSettings
from perron.text.formats import formats
from perron.text.sampling import Examples
from perron.text.settings import DataSettings
from perron.text.tokenizers import SpecialTokens, SubwordTokenizer
from perron.text.vectors import Coverage
from perron.text.vocabulary import (
    VectorProgress,
    build_vocabulary,
    count_dataset_words,
)
from perron.training.recipe import Recipe, read_settings

if TYPE_CHECKING:  # imports transformers, which takes seconds
    from perron.layers.pretrained import PretrainedModel

HASH_BATCH_SIZE = 1000  # examples that are hashed together


@dataclass(frozen=True)
class PreparedRun:
    """Data and model of a run before training.

    Attributes:
        recipe: Settings, with those that the data decided.
        splits: The texts.
        train: Examples to learn from.
        dev: Examples that choose the best epoch.
        test: Examples for the end; None if there are none.
        processor: Turned the texts into ids.
        model: Has the word vectors; otherwise its weights are random.
        coverage: Number of words that each source of word vectors has.
        skipped_vectors: Number of bad rows left out of each source.
    """

    recipe: Recipe
    splits: Splits
    train: Examples
    dev: Examples
    test: Examples | None
    processor: TextProcessor
    model: Classifier
    coverage: dict[str, Coverage]
    skipped_vectors: dict[str, int]

    @cached_property
    def fingerprint(self) -> str:
        """Hash of ids, labels and vocabulary; a checkpoint belongs to one."""
        names = [*self.processor.tokenizer.words, *self.splits.labels]
        parts = [part for part in (self.train, self.dev, self.test) if part is not None]
        return digest(chain(["\n".join(names).encode()], *map(_content, parts)))


def prepare(
    recipe: Recipe, root: Path | None = None, progress: VectorProgress | None = None
) -> PreparedRun:
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
        count=lambda: count_dataset_words(splits.train, recipe.text.case, data),
        vectors=recipe.vectors,
        vector_std=recipe.vector_std,
        skip_invalid=data.skip_invalid,
        progress=progress,
    )
    processor = built.processor.for_input(data.pretokenized, data.sentence_separator)

    def encoded(rows: Dataset) -> Examples:
        return Examples(processor.encode_dataset(rows))

    return PreparedRun(
        recipe.model_copy(update={"model": built.model.config.settings}),
        splits,
        encoded(splits.train),
        encoded(splits.dev),
        None if splits.test is None else encoded(splits.test),
        processor,
        built.model,
        built.coverage,
        built.skipped_vectors,
    )


class BuiltClassifier(NamedTuple):
    """A classifier before training.

    Attributes:
        model: Has the given word vectors, or the weights of a pretrained encoder;
            otherwise its weights are random.
        processor: Turns texts into the ids that it reads.
        coverage: Number of words that each source of word vectors has.
        skipped_vectors: Number of bad rows left out of each source.
    """

    model: Classifier
    processor: TextProcessor
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
    vector_std: float | None = None,
    skip_invalid: bool = False,
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
        vector_std: Standard deviation that each source is scaled to.
        skip_invalid: Leave out rows of word vectors that cannot be read.
        progress: Called while word vectors are read.
    """
    sizes = text.max_words, text.max_sentences
    if isinstance(settings.encoder, HuggingFaceSettings):
        tokenizer, config, source = _read_pretrained(settings.encoder, text.max_words)
        vocab_size, width = source.vectors.shape
        model = _new_model(settings, labels, sizes, seed, vocab_size, width, config)
        encoder: Any = model.encoder
        model.embedding.set_vectors(source.vectors)
        encoder.load_pretrained(source.model, config.before, config.after)
        processor = TextProcessor(tokenizer, settings.kind, *sizes)
        return BuiltClassifier(model, processor, {}, {})
    vocabulary = build_vocabulary(count(), text, vectors, skip_invalid, progress)
    vocab_size = len(vocabulary.words)
    model = _new_model(settings, labels, sizes, seed, vocab_size, vocabulary.vector_dim)
    if vocabulary.sources:
        matrix = vocabulary.matrix(seed, vector_std)
        model.embedding.set_vectors(torch.from_numpy(matrix))
    processor = TextProcessor(vocabulary.tokenizer, settings.kind, *sizes)
    return BuiltClassifier(
        model, processor, vocabulary.coverage(), vocabulary.skipped()
    )


def _new_model(
    settings: ModelSettings,
    labels: Sequence[str],
    sizes: tuple[int, int],
    seed: int,
    vocab_size: int,
    width: int | None,
    pretrained: PretrainedEncoderConfig | None = None,
) -> Classifier:
    """Build a model with random weights; ``width`` is that of its word vectors."""
    torch.manual_seed(seed)
    return build_model(
        ModelConfig(
            settings=settings if width is None else with_embedding_dim(settings, width),
            vocab_size=vocab_size,
            labels=tuple(labels),
            max_words=sizes[0],
            max_sentences=sizes[1],
            pretrained=pretrained,
        )
    )


def _read_pretrained(
    settings: HuggingFaceSettings, max_words: int
) -> tuple[SubwordTokenizer, PretrainedEncoderConfig, "PretrainedModel"]:
    """Read a pretrained encoder, and refuse one that cannot read such texts."""
    where = f"model.encoder = 'hf:{settings.model}'"
    try:
        from perron.layers.pretrained import read_pretrained
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{where} needs {error.name}. Install it with pip install 'perron[hf]'."
        ) from error
    source = read_pretrained(settings.model, where)
    tokenizer = SubwordTokenizer(source.tokenizer, settings.keep_special_tokens)
    words, vectors = len(tokenizer.words), len(source.vectors)
    # `transformers` makes up an empty tokenizer where files are missing. A model may
    # have some vectors more than its tokenizer has words, but not twice as many.
    if not vectors // 2 < words <= vectors:
        raise SettingsError(
            f"{where}: its tokenizer has {words} words, but the model has {vectors} "
            "vectors of words. Check that the files of the tokenizer are not missing."
        )
    kept = tokenizer.kept_special_tokens
    inside = len(kept.before + kept.after)
    if inside >= max_words:
        raise SettingsError(
            f"{where}: text.max_words must be at least {inside + 1}, got {max_words}: "
            f"{inside} special tokens around a text leave no room for words."
        )
    # The special tokens that the encoder itself puts around a text.
    before, after = (
        SpecialTokens((), ())
        if settings.keep_special_tokens
        else tokenizer.special_tokens
    )
    most, added = source.max_tokens, len(before + after)
    if most is not None and max_words + added > most:
        raise SettingsError(
            f"{where}: text.max_words must be at most {most - added}, got {max_words}: "
            f"the model reads {most} subwords, {added} of them special tokens."
        )
    config = PretrainedEncoderConfig(config=source.config, before=before, after=after)
    return tokenizer, config, source


def with_embedding_dim(settings: ModelSettings, width: int) -> ModelSettings:
    """Return the settings of a model with the width that its word vectors have."""
    embedding = settings.embedding.model_copy(update={"embedding_dim": width})
    return settings.model_copy(update={"embedding": embedding})


def _content(examples: Examples) -> Iterator[bytes]:
    """Yield what examples consist of, independent of where the cache keeps them."""
    for begin in range(0, len(examples), HASH_BATCH_SIZE):
        rows = range(begin, min(begin + HASH_BATCH_SIZE, len(examples)))
        batch = examples.batch(rows)
        for tensor in (*batch.inputs.values(), batch.labels):
            yield tensor.numpy().tobytes()


def load_run_examples(
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


def load_examples(
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
    if is_pair != (pipeline.processor.kind == "pair"):
        fix = "Leave out --text-pair." if is_pair else "Add --text-pair COLUMN."
        raise SettingsError(pair_mismatch(not is_pair, fix))
    is_file = formats[settings.format].location == "file"
    name = str(settings.train) if is_file else part
    rows = load_split(settings, name, pipeline.labels, root).rows
    return _examples(pipeline, rows, settings)


def _examples(pipeline: Pipeline, rows: Any, settings: DataSettings) -> Examples:
    processor = pipeline.processor.for_input(
        settings.pretokenized, settings.sentence_separator
    )
    return Examples(processor.encode_dataset(rows))
