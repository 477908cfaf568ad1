"""Preparation of a run: encoded data and a model before the first step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from pydantic import ValidationError

from perron.errors import DataError, SettingsError
from perron.files import digest
from perron.models import Classifier, ModelConfig, ModelSettings, build_model
from perron.models.config import (
    HuggingFaceSettings,
    PretrainedEncoderConfig,
    folder_files,
    load_weights,
    problems,
    read_config,
)
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
from perron.training.recipe import Recipe, TrainingSettings, read_settings
from perron.training.state_cache import EncodingProgress, StateCache

if TYPE_CHECKING:  # imports transformers, which takes seconds
    from perron.layers.pretrained import PretrainedModel

HASH_BATCH_SIZE = 1000


@dataclass(frozen=True)
class PreparedRun:
    """Data and model of a run before training.

    Attributes:
        recipe: Settings, including those inferred from the data.
        splits: Texts and labels.
        train: Training examples.
        dev: Examples for early stopping and for selecting the best epoch.
        test: Test examples, or None.
        processor: Text processor that encoded the texts.
        model: Model with its word vectors; all other weights are random.
        coverage: Coverage of the vocabulary by each source of word vectors.
        skipped_vectors: Number of invalid rows skipped in each source.
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
        """Hash of ids, labels and vocabulary, which ties a checkpoint to its data."""
        names = [*self.processor.tokenizer.words, *self.splits.labels]
        parts = [part for part in (self.train, self.dev, self.test) if part is not None]
        return digest(chain(["\n".join(names).encode()], *map(_tensor_bytes, parts)))


def prepare(
    recipe: Recipe,
    root: Path | None = None,
    progress: VectorProgress | None = None,
    encoding_progress: EncodingProgress | None = None,
    device: torch.device | str = "cpu",
) -> PreparedRun:
    """Read the data and build the model, with random weights drawn from the seed.

    Args:
        recipe: Settings of the run.
        root: Folder of the datasets.
        progress: Callback for the progress of reading word vectors.
        encoding_progress: Callback for the progress of caching encoder states.
        device: Device of the model, which encodes the texts for the cache.
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
    if recipe.initial_model is not None:
        _load_initial_weights(built.model, Path(recipe.initial_model))
    processor = built.processor.for_input(data.pretokenized, data.sentence_separator)

    parts = [
        None if rows is None else Examples(processor.encode_dataset(rows))
        for rows in (splits.train, splits.dev, splits.test)
    ]
    train, dev, test = cached_examples(
        built.model.to(device), parts, recipe.training, encoding_progress
    )
    train.weights = recipe.training.text_weights(splits.labels, train.labels)
    return PreparedRun(
        recipe.model_copy(update={"model": built.model.config.settings}),
        splits,
        train,
        dev,
        test,
        processor,
        built.model,
        built.coverage,
        built.skipped_vectors,
    )


def _load_initial_weights(model: Classifier, folder: Path) -> None:
    """Load the weights of a saved model, whose encoder may be frozen or not."""
    files = folder_files(folder)
    config = read_config(files)
    new = model.config
    settings = config.settings.model_copy(update={"encoder": new.settings.encoder})
    changes = {"settings": settings, "temperature": new.temperature}
    if config.model_copy(update=changes) != new:
        raise SettingsError(
            "initial_model must have the same architecture, vocabulary and classes as "
            f"this run, got {folder}, which differs."
        )
    load_weights(model, files)


def cached_examples(
    model: Classifier,
    parts: Sequence[Examples | None],
    settings: TrainingSettings,
    progress: EncodingProgress | None = None,
) -> list[Any]:
    """Return examples that read the states of a frozen encoder from the cache.

    Texts that are not in the cache are encoded first. The examples are returned
    unchanged if the model has no frozen encoder, or if caching is turned off.

    Args:
        model: Model, on the device that encodes the texts.
        parts: Examples, or None.
        settings: Settings of the cache.
        progress: Callback for the progress of encoding.
    """
    dtype = settings.cache_dtype
    if dtype == "none" or not model.has_frozen_encoder:
        return list(parts)
    cache = StateCache(model, dtype, settings.max_cache_gigabytes, progress)
    return cache.attach(parts)


class BuiltClassifier(NamedTuple):
    """A classifier before training.

    Attributes:
        model: Model with its word vectors or pretrained encoder; all other weights are
            random.
        processor: Text processor for the inputs of the model.
        coverage: Coverage of the vocabulary by each source of word vectors.
        skipped_vectors: Number of invalid rows skipped in each source.
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
    """Build a text classifier with its vocabulary and word vectors or encoder.

    Args:
        settings: Architecture of the model. Word vectors override the width of the
            embedding.
        text: Tokenization settings.
        labels: Names of the classes.
        seed: Random seed of the weights.
        count: Function that returns the frequency of each word in the training texts.
            Not called for a pretrained encoder, which has its own vocabulary.
        vectors: Sources of word vectors to concatenate.
        vector_std: Standard deviation to scale each source to.
        skip_invalid: Whether to skip invalid rows of word vectors.
        progress: Callback for the progress of reading word vectors.
    """
    sizes = text.max_words, text.max_sentences
    if isinstance(settings.encoder, HuggingFaceSettings):
        tokenizer, config, source = _read_pretrained(settings.encoder, text.max_words)
        vocab_size, embedding_dim = source.vectors.shape
        model = _new_model(
            settings, labels, sizes, seed, vocab_size, embedding_dim, config
        )
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
    embedding_dim: int | None,
    pretrained: PretrainedEncoderConfig | None = None,
) -> Classifier:
    """Build a model with random weights."""
    if embedding_dim is not None:
        settings = with_embedding_dim(settings, embedding_dim)
    torch.manual_seed(seed)
    return build_model(
        ModelConfig(
            settings=settings,
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
    """Read a pretrained encoder, and check that it supports texts of this length."""
    where = f"model.encoder = 'hf:{settings.model}'"
    try:
        from perron.layers.pretrained import load_pretrained_model
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{where} requires {error.name}. Install it with: pip install 'perron[hf]'"
        ) from error
    source = load_pretrained_model(settings.model, where)
    try:
        source = source.truncated(settings.layers)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error
    tokenizer = SubwordTokenizer(source.tokenizer, settings.keep_special_tokens)
    words, vectors = len(tokenizer.words), len(source.vectors)
    # `transformers` creates an empty tokenizer if files are missing. A model may have
    # more embeddings than its tokenizer has tokens, but not twice as many.
    if not vectors // 2 < words <= vectors:
        raise SettingsError(
            f"{where}: the tokenizer has {words} tokens, but the model has {vectors} "
            "embeddings. Check that the tokenizer files are present."
        )
    kept = tokenizer.kept_special_tokens
    num_special = len(kept.before + kept.after)
    if num_special >= max_words:
        raise SettingsError(
            f"{where}: text.max_words must be at least {num_special + 1}, got "
            f"{max_words}. The model adds {num_special} special tokens to each text."
        )
    # Special tokens that the encoder adds to each text.
    before, after = (
        SpecialTokens((), ())
        if settings.keep_special_tokens
        else tokenizer.special_tokens
    )
    limit, added = source.max_tokens, len(before + after)
    if limit is not None and max_words + added > limit:
        raise SettingsError(
            f"{where}: text.max_words must be at most {limit - added}, got {max_words}."
            f" The model accepts {limit} tokens, {added} of them special tokens."
        )
    config = PretrainedEncoderConfig(config=source.config, before=before, after=after)
    return tokenizer, config, source


def with_embedding_dim(settings: ModelSettings, embedding_dim: int) -> ModelSettings:
    """Return the model settings with another embedding dimension."""
    embedding = settings.embedding.model_copy(update={"embedding_dim": embedding_dim})
    return settings.model_copy(update={"embedding": embedding})


def _tensor_bytes(examples: Examples) -> Iterator[bytes]:
    """Yield the token ids and labels of examples as bytes."""
    examples = examples.with_source(None)
    for start in range(0, len(examples), HASH_BATCH_SIZE):
        rows = range(start, min(start + HASH_BATCH_SIZE, len(examples)))
        batch = examples.batch(rows)
        for tensor in (*batch.inputs.values(), batch.labels):
            yield tensor.numpy().tobytes()


def load_run_examples(
    pipeline: Pipeline, folder: Path, part: str, root: Path | None = None
) -> Examples:
    """Load a part of the data that the model in a folder was trained on.

    Args:
        pipeline: Model.
        folder: Folder of the model.
        part: Part of the data: train, dev or test.
        root: Folder of the datasets.
    """
    if part not in PARTS:
        raise SettingsError(f"--part must be one of {', '.join(PARTS)}, got {part}.")
    settings = read_settings(folder).data
    splits = load_data(settings, root)
    if splits.labels != pipeline.labels:
        raise DataError(
            "the classes in the data have changed since training. Add --data FILE.",
            folder,
        )
    rows = getattr(splits, part)
    if rows is None:
        raise SettingsError(
            f"{folder} was trained without {part} data. Add --data FILE."
        )
    return _examples(pipeline, rows, settings)


def load_examples(
    pipeline: Pipeline, table: Mapping[str, Any], part: str, root: Path | None = None
) -> Examples:
    """Load data for a model, labeled with the classes of the model.

    Args:
        pipeline: Model.
        table: Settings of the data. If ``train`` is a file, all of it is read.
        part: Part to read if the data is not a file: a split of a Hugging Face dataset,
            or train, dev or test of a packaged dataset.
        root: Folder of the datasets.
    """
    try:
        settings = DataSettings.model_validate(table)
    except ValidationError as error:
        raise SettingsError(problems(error)[0]) from error
    is_pair = settings.text_pair is not None
    if is_pair != (pipeline.processor.kind == "pair"):
        fix = "Remove --text-pair." if is_pair else "Add --text-pair COLUMN."
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
