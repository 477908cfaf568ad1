"""Word vectors: streaming readers, coverage and embedding matrices."""

from perron.text.vectors.read import check_vectors, read_vectors
from perron.text.vectors.table import (
    Coverage,
    WordVectors,
    coverage,
    embedding_matrix,
    wanted_words,
)

__all__ = [
    "Coverage",
    "WordVectors",
    "check_vectors",
    "coverage",
    "embedding_matrix",
    "read_vectors",
    "wanted_words",
]
