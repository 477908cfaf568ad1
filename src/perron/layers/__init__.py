"""What stands before and after pooling: embedding, encoders, head."""

from perron.layers.bilstm import BiLSTMEncoder
from perron.layers.cnn import CNNEncoder
from perron.layers.embedding import WordEmbedding
from perron.layers.encoder import Encoder, NoEncoder
from perron.layers.head import ClassifierHead
from perron.layers.transformer import TransformerEncoder

__all__ = [
    "BiLSTMEncoder",
    "CNNEncoder",
    "ClassifierHead",
    "Encoder",
    "NoEncoder",
    "TransformerEncoder",
    "WordEmbedding",
]
