"""Layers around the aggregator: word embedding, encoders and classifier head."""

from perron.layers.basic import BiLSTMEncoder, ClassifierHead, WordEmbedding
from perron.layers.encoders import (
    ENCODERS,
    CNNEncoder,
    Encoder,
    NoEncoder,
    TransformerEncoder,
)

__all__ = [
    "ENCODERS",
    "BiLSTMEncoder",
    "CNNEncoder",
    "ClassifierHead",
    "Encoder",
    "NoEncoder",
    "TransformerEncoder",
    "WordEmbedding",
]
