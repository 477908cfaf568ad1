"""Model configuration, and reading and writing the files of a model."""

import json
from collections.abc import Callable, Mapping
from functools import cache, partial, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save
from torch import Tensor, nn

from perron.errors import DataError, SettingsError, expected_value, suggest_name
from perron.files import atomic_write, make_folder
from perron.layers import ENCODERS, ClassifierHead, WordEmbedding
from perron.migrations import migrate, stamp, tensor_name
from perron.pooling import AGGREGATORS
from perron.registry import (
    PLUGIN_ADVICE,
    Registry,
    check_setting_names,
    load_plugins,
    settings_from,
)


class Settings(BaseModel):
    """Base class for settings, which are frozen and reject unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    _check_names = model_validator(mode="before")(check_setting_names)


Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveInt = Annotated[int, Field(ge=1)]


class HuggingFaceSettings(Settings):
    """Settings of a pretrained encoder; ``encoder = "hf:NAME"`` is a shorthand.

    They select the model to load. The configuration of the loaded model is stored in
    `PretrainedEncoderConfig`.

    Attributes:
        name: ``"hf"``.
        model: Folder, name of a model on the Hub, or ``package:NAME``.
        freeze: Whether to keep the model fixed during training, including embeddings.
        keep_special_tokens: Whether to pool special tokens such as ``[CLS]``, too.
        layers: ``"last"``, ``"mix"`` (a learned weighted mean over all layers), or a
            list of layer numbers whose states are concatenated. Layer 0 is the input of
            the first block.
        dropout: Dropout probability for the states during training.
    """

    name: Literal["hf"] = "hf"
    model: str
    freeze: bool = False
    keep_special_tokens: bool = False
    layers: (
        Literal["last", "mix"]
        | Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    ) = "last"
    dropout: Fraction = 0.0


def expand_name(value: Any) -> Any:
    """Expand a name to a table: ``"max"`` to ``{name = "max"}``."""
    if not isinstance(value, str):
        return value
    if value.startswith("hf:"):
        return {"name": "hf", "model": value.removeprefix("hf:")}
    return {"name": value}


def read_aggregator(value: str | Mapping[str, Any]) -> Any:
    """Return the settings of an aggregator from its name or a table of settings.

    Raises:
        SettingsError: If the aggregator, or one of the settings, does not exist.
    """
    try:
        return _read(AGGREGATORS, (), value)
    except ValidationError as error:
        raise SettingsError(problems(error, "aggregator")[0]) from error


def _read(registry: Registry[Any], extra: tuple[type[Any], ...], value: Any) -> Any:
    """Validate the settings of a component, loading plugins if the name is unknown."""
    table = expand_name(value)
    if isinstance(table, Mapping):
        table = dict(table)
        name = str(table.get("name"))
        if name not in registry:
            load_plugins()
        # Unlike the union, the selected class has errors without its name in the key.
        kinds = [settings_from(registry[name])] if name in registry else extra
        for kind in kinds:
            if kind.model_fields["name"].default == name:
                return kind.model_validate(table)
    return _adapter(tuple(registry.values()), extra).validate_python(table)


@cache
def _adapter(components: tuple[type, ...], extra: tuple[type, ...]) -> Any:
    kinds: Any = reduce(or_, [*map(settings_from, components), *extra])
    return TypeAdapter(Annotated[kinds, Field(discriminator="name")])


def problems(error: ValidationError, *path: str) -> list[str]:
    """Return one sentence per validation error.

    Args:
        error: Error raised by pydantic.
        path: Keys that lead to the validated table.
    """
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in (*path, *problem["loc"]))
        lines.append(_sentence(key, problem))
    return lines


def _sentence(key: str, problem: Any) -> str:
    kind, message, value = problem["type"], problem["msg"], problem["input"]
    name = key or "the value"
    if kind == "unknown_setting":
        table, _, last = key.rpartition(".")
        suggestion = suggest_name(last, problem["ctx"]["known"], table)
        return f"{name} is not a valid setting. {suggestion}"
    if kind == "extra_forbidden":
        return f"{name} is not a valid setting."
    if kind == "missing":
        return f"{name} is missing."
    if kind == "union_tag_not_found":
        return f"{name}.name is missing."
    if kind == "union_tag_invalid":
        known = problem["ctx"]["expected_tags"]
        hint = "For a transformers model, use hf:NAME. " if "'hf'" in known else ""
        tag = problem["ctx"]["tag"]
        return f"{name} must be one of {known}, got {tag!r}. {hint}{PLUGIN_ADVICE}"
    if kind == "value_error":  # raised by Perron; the message has the name and value
        own = str(message).removeprefix("Value error, ")
        return f"{key}: {own}" if key else own
    expected = expected_value(problem)
    if expected is None:
        return f"{key}: {message}, got {value!r}."
    return f"{name} must be {expected}, got {value!r}."


def _read_optional(read: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else read(value)


_read_encoder = partial(_read, ENCODERS, (HuggingFaceSettings,))
_read_aggregator = partial(_read, AGGREGATORS, ())
EncoderSettings = Annotated[Any, BeforeValidator(_read_encoder)]
AggregatorSettings = Annotated[Any, BeforeValidator(_read_aggregator)]
OptionalEncoderSettings = Annotated[
    Any, BeforeValidator(partial(_read_optional, _read_encoder))
]
OptionalAggregatorSettings = Annotated[
    Any, BeforeValidator(partial(_read_optional, _read_aggregator))
]

# The vocabulary size and the classes come from the data, so they are not settings.
EmbeddingSettings = settings_from(WordEmbedding, vocab_size=1)
HeadSettings = settings_from(ClassifierHead, embed_dim=1, num_classes=1)

Kind = Literal["text", "document", "pair"]


class ModelSettings(Settings):
    """Settings of a model that do not depend on the data."""

    kind: Kind = "text"
    embedding: Annotated[Any, BeforeValidator(EmbeddingSettings.model_validate)] = (
        EmbeddingSettings()
    )
    encoder: EncoderSettings = _read_encoder("bilstm")
    aggregator: AggregatorSettings = _read_aggregator("centrality")
    # Encoder and aggregator for sentences, only for documents. Default to those for
    # words.
    sentence_encoder: OptionalEncoderSettings = None
    sentence_aggregator: OptionalAggregatorSettings = None
    head: Annotated[Any, BeforeValidator(HeadSettings.model_validate)] = HeadSettings()

    @model_validator(mode="after")
    def _check_sentence_settings(self) -> "ModelSettings":
        settings = [self.sentence_encoder, self.sentence_aggregator]
        if self.kind != "document" and any(part is not None for part in settings):
            raise ValueError(
                "sentence_encoder and sentence_aggregator require kind = 'document', "
                f"got kind = {self.kind!r}."
            )
        return self

    @model_validator(mode="after")
    def _check_pretrained_encoder(self) -> "ModelSettings":
        if isinstance(self.sentence_encoder, HuggingFaceSettings):
            raise ValueError(
                "sentence_encoder must not be a pretrained model, which can only "
                "encode words. Use sentence_encoder = 'bilstm'."
            )
        if (
            self.kind == "document"
            and isinstance(self.encoder, HuggingFaceSettings)
            and self.sentence_encoder is None
        ):
            raise ValueError(
                "sentence_encoder must be set for a pretrained encoder, which can "
                "only encode words. Use sentence_encoder = 'bilstm'."
            )
        return self


class PretrainedEncoderConfig(Settings):
    """Configuration of a pretrained encoder, saved to rebuild it without the original.

    Attributes:
        config: Content of its config.json.
        before: Ids of the special tokens before a text.
        after: Ids of the special tokens after a text.
    """

    config: dict[str, Any]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class ModelConfig(Settings):
    """Everything needed to build a model, except its weights and its tokenizer.

    Attributes:
        settings: Settings of the model.
        vocab_size: Number of token ids.
        labels: Names of the classes.
        max_words: Maximum number of tokens in a text, or in a sentence of a document.
        max_sentences: Maximum number of sentences in a document.
        pretrained: Configuration of the pretrained encoder, for the encoder ``hf``.
        temperature: Number that the logits are divided by, fitted on dev data.
    """

    settings: ModelSettings
    vocab_size: PositiveInt
    labels: Annotated[tuple[str, ...], Field(min_length=2)]
    max_words: PositiveInt = 50
    max_sentences: PositiveInt = 40
    pretrained: PretrainedEncoderConfig | None = None
    temperature: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _check_labels(self) -> "ModelConfig":
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must be unique, got {self.labels}.")
        return self

    @model_validator(mode="after")
    def _check_pretrained(self) -> "ModelConfig":
        if (self.pretrained is None) == (self.settings.encoder.name == "hf"):
            raise ValueError("pretrained must be set if and only if encoder is hf.")
        return self


CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
CARD = "README.md"
FILES = (TOKENIZER, CARD, WEIGHTS, CONFIG)  # in the order of writing

Files = Mapping[str, bytes | Path]  # file name -> content or path


def model_files(config: ModelConfig, state: Mapping[str, Tensor]) -> dict[str, bytes]:
    """Return the content of the configuration and weights files."""
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in state.items()
    }
    content = stamp("model", {"model": config.model_dump(mode="json")})
    return {
        WEIGHTS: save(tensors, metadata={"format": "pt"}),
        CONFIG: json.dumps(content, indent=2).encode(),
    }


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, each atomically.

    The configuration is written last, because a folder that has one is a model.
    """
    make_folder(folder)
    for name in sorted(files, key=FILES.index):
        atomic_write(folder / name, files[name])


def folder_files(folder: Path) -> Files:
    """Return the paths of the model files in a folder."""
    if not folder.is_dir():
        raise DataError("folder does not exist", folder)
    if not (folder / CONFIG).is_file():
        raise DataError(
            f"has no {CONFIG}: no model was saved here. A training run saves one after "
            f"its first epoch. To resume a run: perron train --resume --out {folder}",
            folder,
        )
    return {name: folder / name for name in FILES if (folder / name).is_file()}


def read_bytes(files: Files, name: str) -> bytes:
    """Return the content of a file."""
    content = files[name]
    return content.read_bytes() if isinstance(content, Path) else content


def file_location(files: Files, name: str) -> Path | str:
    """Return the path of a file for error messages, or its name if it is in memory.

    A missing file is expected next to the configuration.
    """
    content = files.get(name, files.get(CONFIG))
    return content.with_name(name) if isinstance(content, Path) else name


def read_config(files: Files) -> ModelConfig:
    """Read and validate the configuration of a model."""
    where = file_location(files, CONFIG)
    try:
        content = json.loads(read_bytes(files, CONFIG))
    except KeyError as error:
        raise DataError("is missing", where) from error
    except ValueError as error:
        raise DataError(f"is not valid JSON: {error}", where) from error
    table = migrate("model", content if isinstance(content, dict) else {}, where)
    if unknown := sorted(set(table) - {"model"}):
        raise DataError(f"{unknown[0]} is not a valid key", where)
    try:
        return ModelConfig.model_validate(table.get("model"))
    except ValidationError as error:
        raise DataError(problems(error, "model")[0], where) from error


def load_weights(model: nn.Module, files: Files) -> None:
    """Load the weights, which must match those of the model exactly."""
    where, content = file_location(files, WEIGHTS), files.get(WEIGHTS)
    if content is None:
        raise DataError("is missing, so the model was not saved completely", where)
    try:
        # A file is memory-mapped, so the weights are copied only once.
        tensors = load(content) if isinstance(content, bytes) else load_file(content)
        model.load_state_dict(
            {tensor_name(name): tensor for name, tensor in tensors.items()}
        )
    except (SafetensorError, RuntimeError) as error:
        raise DataError(f"does not match {CONFIG}: {error}", where) from error
