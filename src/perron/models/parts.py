"""Settings to layers and aggregators."""

from perron.errors import SettingsError
from perron.layers import (
    BiLSTMEncoder,
    CNNEncoder,
    Encoder,
    NoEncoder,
    TransformerEncoder,
)
from perron.models.settings import (
    AggregatorSettings,
    EncoderSettings,
    HuggingFaceSettings,
    PretrainedConfig,
)
from perron.pooling import (
    Aggregator,
    CentralityPool,
    DynamicRoutingPool,
    FirstPool,
    IntraAttentionPool,
    MaxPool,
    MeanPool,
    SelfAttentionPool,
)

ENCODERS: dict[str, type[Encoder]] = {
    "bilstm": BiLSTMEncoder,
    "cnn": CNNEncoder,
    "transformer": TransformerEncoder,
    "none": NoEncoder,
}
AGGREGATORS: dict[str, type[Aggregator]] = {
    "max": MaxPool,
    "mean": MeanPool,
    "first": FirstPool,
    "self-attention": SelfAttentionPool,
    "intra-attention": IntraAttentionPool,
    "dynamic-routing": DynamicRoutingPool,
    "centrality": CentralityPool,
}


def build_encoder(
    settings: EncoderSettings, dim: int, pretrained: PretrainedConfig | None = None
) -> Encoder:
    """Make the encoder for vectors of this width; other settings are its arguments.

    Args:
        settings: of the encoder.
        dim: width of the vectors.
        pretrained: what a pretrained model is; for ``hf`` alone.
    """
    if isinstance(settings, HuggingFaceSettings):
        assert pretrained is not None
        return _pretrained_encoder(settings, dim, pretrained)
    return ENCODERS[settings.name](dim, **settings.model_dump(exclude={"name"}))


def _pretrained_encoder(
    settings: HuggingFaceSettings, dim: int, pretrained: PretrainedConfig
) -> Encoder:
    try:
        from perron.layers.hugging_face import HuggingFaceEncoder
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"the encoder hf needs {error.name}: pip install 'perron[hf]'"
        ) from error
    return HuggingFaceEncoder(
        dim,
        pretrained.config,
        len(pretrained.before),
        len(pretrained.after),
        settings.freeze,
    )


def build_aggregator(settings: AggregatorSettings, dim: int) -> Aggregator:
    """Make the aggregator for states of this width."""
    return AGGREGATORS[settings.name](dim, **settings.model_dump(exclude={"name"}))
