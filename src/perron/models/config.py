"""What a model is made of, as settings that a recipe or a saved model can hold."""

from collections.abc import Mapping
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

from perron.errors import SettingsError
from perron.pooling.connectivity import check_options


class Settings(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]


class EmbeddingSettings(Settings):
    """`WordEmbedding`; its width is that of the word vectors where there are some."""

    dim: Count = 300
    freeze: bool = False
    dropout: Share = 0.0


class BiLSTMSettings(Settings):
    """`BiLSTMEncoder`."""

    name: Literal["bilstm"] = "bilstm"
    hidden: Count = 300
    layers: Count = 1
    dropout: Share = 0.0


class CNNSettings(Settings):
    """`CNNEncoder`."""

    name: Literal["cnn"] = "cnn"
    widths: Annotated[tuple[Count, ...], Field(min_length=1)] = (3, 4, 5)
    filters: Count = 100


class TransformerSettings(Settings):
    """`TransformerEncoder`."""

    name: Literal["transformer"] = "transformer"
    hidden: Count = 256
    layers: Count = 2
    heads: Count = 4
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fit(self) -> "TransformerSettings":
        if self.hidden % self.heads or self.hidden % 2:
            raise ValueError("hidden must be even and a multiple of heads")
        return self


class NoEncoderSettings(Settings):
    """`NoEncoder`: pool the word vectors themselves."""

    name: Literal["none"] = "none"


class HuggingFaceSettings(Settings):
    """`HuggingFaceEncoder`; ``encoder = "hf:NAME"`` stands for it."""

    name: Literal["hf"] = "hf"
    model: str  # a folder, a name on the hub, or package:NAME
    freeze: bool = False  # its vectors of subwords too
    marks: bool = False  # pool the marks around a text too, such as [CLS]


class MaxSettings(Settings):
    """`MaxPool`."""

    name: Literal["max"] = "max"


class MeanSettings(Settings):
    """`MeanPool`."""

    name: Literal["mean"] = "mean"


class FirstSettings(Settings):
    """`FirstPool`."""

    name: Literal["first"] = "first"


class SelfAttentionSettings(Settings):
    """`SelfAttentionPool`."""

    name: Literal["self-attention"] = "self-attention"
    queries: Count = 1
    hidden: Count = 50


class IntraAttentionSettings(Settings):
    """`IntraAttentionPool`."""

    name: Literal["intra-attention"] = "intra-attention"
    hidden: Count = 50


class DynamicRoutingSettings(Settings):
    """`DynamicRoutingPool`."""

    name: Literal["dynamic-routing"] = "dynamic-routing"
    capsules: Count = 5
    iterations: Count = 3
    reverse: bool = False


class CentralitySettings(Settings):
    """`CentralityPool`."""

    name: Literal["centrality"] = "centrality"
    hidden: Count = 50
    heads: Count = 1
    connectivity: Literal["mlp", "bilinear", "query", "low_rank"] = "mlp"
    rank: Count = 32
    norm: Literal["sum", "l2"] = "sum"
    activation: Literal["tanh", "relu"] = "tanh"
    source_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    edge_dropout: Share = 0.0
    values: Literal["states", "flow"] = "states"
    reach: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _options_fit_the_graph(self) -> "CentralitySettings":
        check_options(
            self.connectivity,
            self.source_scale,
            self.edge_dropout,
            self.values,
            self.reach,
        )
        return self


def named(value: Any) -> Any:
    """Let ``aggregator = "max"`` stand for ``aggregator = {name = "max"}``."""
    if not isinstance(value, str):
        return value
    if value.startswith("hf:"):
        return {"name": "hf", "model": value.removeprefix("hf:")}
    return {"name": value}


EncoderSettings = Annotated[
    BiLSTMSettings
    | CNNSettings
    | TransformerSettings
    | HuggingFaceSettings
    | NoEncoderSettings,
    Field(discriminator="name"),
    BeforeValidator(named),
]
AggregatorSettings = Annotated[
    MaxSettings
    | MeanSettings
    | FirstSettings
    | SelfAttentionSettings
    | IntraAttentionSettings
    | DynamicRoutingSettings
    | CentralitySettings,
    Field(discriminator="name"),
    BeforeValidator(named),
]
_AGGREGATOR: Any = TypeAdapter(AggregatorSettings)


def read_aggregator(given: str | Mapping[str, Any]) -> Any:
    """Return the `AggregatorSettings` for a name, or for a name and settings.

    Raises:
        SettingsError: there is no such aggregator, or it has no such setting.
    """
    try:
        return _AGGREGATOR.validate_python(
            given if isinstance(given, str) else dict(given)
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in ("aggregator", *first["loc"]))
        raise SettingsError(f"{key}: {what_is_wrong(first)}") from error


def what_is_wrong(problem: Any) -> str:
    """Say in words what pydantic found; ``problem`` is one of a ValidationError's."""
    if problem["type"] == "extra_forbidden":
        return "there is no such setting"
    if problem["type"] == "missing":
        return "is missing"
    if problem["type"] != "union_tag_invalid":
        return str(problem["msg"]).removeprefix("Value error, ")
    known = problem["ctx"]["expected_tags"]
    hint = "; a model of transformers is hf:NAME" if "'hf'" in known else ""
    return f"there is no {problem['ctx']['tag']!r}; there are {known}{hint}"


Kind = Literal["text", "document", "pair"]


class HeadSettings(Settings):
    """`ClassifierHead`."""

    hidden: Count = 300
    dropout: Share = 0.0


class ModelSettings(Settings):
    """A model, but for what the data decide: vocabulary and classes."""

    kind: Kind = "text"
    embedding: EmbeddingSettings = EmbeddingSettings()
    encoder: EncoderSettings = BiLSTMSettings()
    aggregator: AggregatorSettings = CentralitySettings()
    # Documents only: the same again over the vectors of sentences; as for words if
    # not given.
    sentence_encoder: EncoderSettings | None = None
    sentence_aggregator: AggregatorSettings | None = None
    head: HeadSettings = HeadSettings()

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


class PretrainedConfig(Settings):
    """What a model of `transformers` is, so that it need not be at hand again."""

    config: dict[str, Any]  # its config.json
    before: tuple[int, ...] = ()  # ids of the marks that it wants before a text
    after: tuple[int, ...] = ()  # and behind it


class ModelConfig(Settings):
    """All that is needed to build a model and feed it, but for weights and words."""

    settings: ModelSettings
    vocabulary: Count
    labels: Annotated[tuple[str, ...], Field(min_length=2)]
    max_words: Count = 50  # of a text, or of a sentence of a document
    max_sentences: Count = 40  # of a document
    pretrained: PretrainedConfig | None = None  # of the encoder hf

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
