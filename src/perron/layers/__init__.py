"""Layers around the aggregator: word embedding, encoders and classifier head."""

from perron.layers.encoders import (
    ENCODERS,
    CNNEncoder,
    Encoder,
    NoEncoder,
    TransformerEncoder,
)
from perron.layers.input_output import ClassifierHead, WordEmbedding
from perron.layers.lstm import BiLSTMEncoder

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
