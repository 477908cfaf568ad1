"""Model configuration, and the files of a model in a folder or in memory."""

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

from perron.errors import DataError, SettingsError
from perron.files import atomic_write, make_folder
from perron.layers import ENCODERS, ClassifierHead, WordEmbedding
from perron.migration_steps import tensor_name
from perron.migrations import migrate, stamp
from perron.pooling import AGGREGATORS
from perron.registry import PLUGIN_ADVICE, Registry, load_plugins, settings_from


class Settings(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveInt = Annotated[int, Field(ge=1)]


class HuggingFaceSettings(Settings):
    """Settings of a pretrained encoder; ``encoder = "hf:NAME"`` stands for them.

    They say which model to load. Its configuration, which `HuggingFaceEncoder` is built
    from, is in `PretrainedEncoderConfig`.

    Attributes:
        name: ``"hf"``.
        model: A folder, a name on the hub, or ``package:NAME``.
        freeze: Leave the model as it is while training, its embedding included.
        keep_special_tokens: Pool the special tokens around a text too, such as ``[CLS]``.
    """

    name: Literal["hf"] = "hf"
    model: str
    freeze: bool = False
    keep_special_tokens: bool = False


def named(value: Any) -> Any:
    """Let ``aggregator = "max"`` stand for ``aggregator = {name = "max"}``."""
    if not isinstance(value, str):
        return value
    if value.startswith("hf:"):
        return {"name": "hf", "model": value.removeprefix("hf:")}
    return {"name": value}


def read_aggregator(given: str | Mapping[str, Any]) -> Any:
    """Return the settings of an aggregator for its name, or for a table of settings.

    Raises:
        SettingsError: There is no such aggregator, or it has no such setting.
    """
    try:
        return _read(AGGREGATORS, (), given)
    except ValidationError as error:
        raise SettingsError(problems(error, "aggregator")[0]) from error


def _read(registry: Registry[Any], others: tuple[type, ...], given: Any) -> Any:
    """Check the settings of a component; those of plugins are known as well."""
    table = named(given)
    if isinstance(table, Mapping):
        table = dict(table)
        if str(table.get("name")) not in registry:
            load_plugins()
    return _adapter(tuple(registry.values()), others).validate_python(table)


@cache
def _adapter(components: tuple[type, ...], others: tuple[type, ...]) -> Any:
    kinds: Any = reduce(or_, [*map(settings_from, components), *others])
    return TypeAdapter(Annotated[kinds, Field(discriminator="name")])


def problems(error: ValidationError, *path: str) -> list[str]:
    """Return each problem that pydantic found, as "<key>: <what is wrong>".

    Args:
        error: The error.
        path: Keys that lead to what was validated.
    """
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in (*path, *problem["loc"]))
        lines.append(f"{key}: {_problem(problem)}" if key else _problem(problem))
    return lines


def _problem(problem: Any) -> str:
    kind, message, given = problem["type"], problem["msg"], problem["input"]
    if kind == "extra_forbidden":
        return "there is no such setting"
    if kind == "missing":
        return "is missing"
    if kind == "union_tag_not_found":
        return "name is missing"
    if kind == "union_tag_invalid":
        known = problem["ctx"]["expected_tags"]
        hint = "A model of transformers is hf:NAME. " if "'hf'" in known else ""
        tag = problem["ctx"]["tag"]
        return f"must be one of {known}, got {tag!r}. {hint}{PLUGIN_ADVICE}"
    if kind == "value_error":  # raised by Perron, which says what it got
        return str(message).removeprefix("Value error, ")
    return message if isinstance(given, Mapping) else f"{message}, got {given!r}"


def _or_none(read: Callable[[Any], Any], given: Any) -> Any:
    return None if given is None else read(given)


_read_encoder = partial(_read, ENCODERS, (HuggingFaceSettings,))
_read_aggregator = partial(_read, AGGREGATORS, ())
EncoderSettings = Annotated[Any, BeforeValidator(_read_encoder)]
AggregatorSettings = Annotated[Any, BeforeValidator(_read_aggregator)]
OptionalEncoderSettings = Annotated[
    Any, BeforeValidator(partial(_or_none, _read_encoder))
]
OptionalAggregatorSettings = Annotated[
    Any, BeforeValidator(partial(_or_none, _read_aggregator))
]

# What the data decide is not a setting: the size of the vocabulary, the classes.
EmbeddingSettings = settings_from(WordEmbedding, vocab_size=1)
HeadSettings = settings_from(ClassifierHead, embed_dim=1, num_classes=1)

Kind = Literal["text", "document", "pair"]


class ModelSettings(Settings):
    """A model, but for what the data decide: vocabulary and classes."""

    kind: Kind = "text"
    embedding: Annotated[Any, BeforeValidator(EmbeddingSettings.model_validate)] = (
        EmbeddingSettings()
    )
    encoder: EncoderSettings = _read_encoder("bilstm")
    aggregator: AggregatorSettings = _read_aggregator("centrality")
    # Documents only: the same again over the vectors of sentences; as for words if
    # not given.
    sentence_encoder: OptionalEncoderSettings = None
    sentence_aggregator: OptionalAggregatorSettings = None
    head: Annotated[Any, BeforeValidator(HeadSettings.model_validate)] = HeadSettings()

    @model_validator(mode="after")
    def _sentences_are_of_documents(self) -> "ModelSettings":
        given = [self.sentence_encoder, self.sentence_aggregator]
        if self.kind != "document" and any(part is not None for part in given):
            raise ValueError(
                "sentence_encoder and sentence_aggregator are for kind = 'document'"
            )
        return self

    @model_validator(mode="after")
    def _pretrained_models_read_words(self) -> "ModelSettings":
        if isinstance(self.sentence_encoder, HuggingFaceSettings):
            raise ValueError("sentence_encoder: a pretrained model reads words alone")
        if (
            self.kind == "document"
            and isinstance(self.encoder, HuggingFaceSettings)
            and self.sentence_encoder is None
        ):
            raise ValueError(
                "sentence_encoder is missing: a pretrained model reads words alone; "
                "take sentence_encoder = 'bilstm'"
            )
        return self


class PretrainedEncoderConfig(Settings):
    """The configuration of a pretrained encoder, so that the original is not needed.

    Attributes:
        config: Its config.json.
        before: Ids of the special tokens that it needs before a text.
        after: Ids of those after a text.
    """

    config: dict[str, Any]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class ModelConfig(Settings):
    """All that is needed to build a model and feed it, but for weights and words."""

    settings: ModelSettings
    vocab_size: PositiveInt
    labels: Annotated[tuple[str, ...], Field(min_length=2)]
    max_words: PositiveInt = 50  # of a text, or of a sentence of a document
    max_sentences: PositiveInt = 40  # of a document
    pretrained: PretrainedEncoderConfig | None = None  # of the encoder hf

    @model_validator(mode="after")
    def _labels_differ(self) -> "ModelConfig":
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must differ, but came as {self.labels}")
        return self

    @model_validator(mode="after")
    def _pretrained_is_for_hf(self) -> "ModelConfig":
        if (self.pretrained is None) == (self.settings.encoder.name == "hf"):
            raise ValueError("pretrained and the encoder hf go together")
        return self


CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
CARD = "README.md"
FILES = (TOKENIZER, CARD, WEIGHTS, CONFIG)  # in the order in which they are written

Files = Mapping[str, bytes | Path]  # file name -> content, or path of the file


def model_files(config: ModelConfig, state: Mapping[str, Tensor]) -> dict[str, bytes]:
    """Return configuration and weights as files."""
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in state.items()
    }
    content = stamp("model", {"model": config.model_dump(mode="json")})
    return {
        WEIGHTS: save(tensors, metadata={"format": "pt"}),
        CONFIG: json.dumps(content, indent=2).encode(),
    }


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, each of them atomically.

    The configuration comes last: it makes the folder a model.
    """
    make_folder(folder)
    for name in sorted(files, key=FILES.index):
        atomic_write(folder / name, files[name])


def folder_files(folder: Path) -> Files:
    """Return the files of the model in a folder; they are read when they are needed."""
    if not folder.is_dir():
        raise DataError("there is no such folder", folder)
    if not (folder / CONFIG).is_file():
        raise DataError(
            f"no {CONFIG} in it: no model was saved there. A training run has one "
            f"after its first epoch: perron train --resume --out {folder}",
            folder,
        )
    return {name: folder / name for name in FILES if (folder / name).is_file()}


def read_bytes(files: Files, name: str) -> bytes:
    """Return the content of a file."""
    content = files[name]
    return content.read_bytes() if isinstance(content, Path) else content


def file_location(files: Files, name: str) -> Path | str:
    """Return the path of a file for errors; without a folder, its name.

    A file that is missing belongs beside the configuration.
    """
    content = files.get(name, files.get(CONFIG))
    return content.with_name(name) if isinstance(content, Path) else name


def read_config(files: Files) -> ModelConfig:
    """Read and check the configuration of a model."""
    where = file_location(files, CONFIG)
    try:
        content = json.loads(read_bytes(files, CONFIG))
    except KeyError as error:
        raise DataError("is missing", where) from error
    except ValueError as error:
        raise DataError(f"is not valid JSON: {error}", where) from error
    table = migrate("model", content if isinstance(content, dict) else {}, where)
    if unknown := sorted(set(table) - {"model"}):
        raise DataError(f"{unknown[0]}: there is no such key", where)
    try:
        return ModelConfig.model_validate(table.get("model"))
    except ValidationError as error:
        raise DataError(problems(error, "model")[0], where) from error


def load_weights(model: nn.Module, files: Files) -> None:
    """Load every weight that the model has, and no other."""
    where, content = file_location(files, WEIGHTS), files.get(WEIGHTS)
    if content is None:
        raise DataError("is missing: the model was not saved completely", where)
    try:
        # A file is mapped into memory, so that the weights are copied once.
        tensors = load(content) if isinstance(content, bytes) else load_file(content)
        model.load_state_dict(
            {tensor_name(name): tensor for name, tensor in tensors.items()}
        )
    except (SafetensorError, RuntimeError) as error:
        raise DataError(f"does not fit {CONFIG}: {error}", where) from error
