"""What stands before and after pooling: embedding, encoders, head."""

from perron.layers.input_output import ClassifierHead, WordEmbedding
from perron.layers.encoders import (
    ENCODERS,
    CNNEncoder,
    Encoder,
    NoEncoder,
    TransformerEncoder,
)
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
