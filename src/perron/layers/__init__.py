"""What stands before and after pooling: embedding, encoders, head."""

from perron.layers.embedding_and_head import ClassifierHead, WordEmbedding
from perron.layers.encoders import (
    BiLSTMEncoder,
    CNNEncoder,
    Encoder,
    NoEncoder,
    TransformerEncoder,
)

__all__ = [
    "BiLSTMEncoder",
    "CNNEncoder",
    "ClassifierHead",
    "Encoder",
    "NoEncoder",
    "TransformerEncoder",
    "WordEmbedding",
]
