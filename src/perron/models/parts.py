"""Settings to layers and aggregators."""

from perron.layers import (
    BiLSTMEncoder,
    CNNEncoder,
    Encoder,
    NoEncoder,
    TransformerEncoder,
)
from perron.models.settings import AggregatorSettings, EncoderSettings
from perron.pooling import (
    Aggregator,
    CentralityPool,
    DynamicRoutingPool,
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
    "self-attention": SelfAttentionPool,
    "intra-attention": IntraAttentionPool,
    "dynamic-routing": DynamicRoutingPool,
    "centrality": CentralityPool,
}


def build_encoder(settings: EncoderSettings, dim: int) -> Encoder:
    """Make the encoder for vectors of this width; other settings are its arguments."""
    return ENCODERS[settings.name](dim, **settings.model_dump(exclude={"name"}))


def build_aggregator(settings: AggregatorSettings, dim: int) -> Aggregator:
    """Make the aggregator for states of this width."""
    return AGGREGATORS[settings.name](dim, **settings.model_dump(exclude={"name"}))
