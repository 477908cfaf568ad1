"""The first and the last layer of a classifier."""

from jaxtyping import Float, Int
from torch import Tensor, nn


class WordEmbedding(nn.Module):
    """Look up a vector for each id, with dropout on the vectors while training.

    Vectors may be given (pretrained), and frozen or tuned with the rest.
    """

    def __init__(
        self, vocabulary: int, dim: int, freeze: bool = False, dropout: float = 0.0
    ) -> None:
        """Set up random vectors of unit variance; see `set_vectors`.

        Args:
            vocabulary: number of ids.
            dim: width of a vector.
            freeze: leave the vectors as they are while training.
            dropout: share of entries set to zero.
        """
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, dim)
        self.vectors.weight.requires_grad_(not freeze)
        self.dropout = nn.Dropout(dropout)

    @property
    def dim(self) -> int:
        """The width of a vector."""
        return self.vectors.embedding_dim

    def set_vectors(self, vectors: Float[Tensor, "v e"]) -> None:
        """Copy pretrained vectors, one for each id."""
        expected = tuple(self.vectors.weight.shape)
        if tuple(vectors.shape) != expected:
            raise ValueError(
                f"vectors must have shape {expected}, but came as "
                f"{tuple(vectors.shape)}"
            )
        self.vectors.load_state_dict({"weight": vectors})

    def forward(self, ids: Int[Tensor, "*words"]) -> Float[Tensor, "*words e"]:
        return self.dropout(self.vectors(ids))


class ClassifierHead(nn.Module):
    """Dropout, dense, tanh, dropout, dense: the head of the paper's authors."""

    def __init__(
        self, dim: int, classes: int, hidden: int = 300, dropout: float = 0.0
    ) -> None:
        """Set up two layers.

        Args:
            dim: width of a text's vector.
            classes: how many.
            hidden: width of the hidden layer.
            dropout: before each layer.
        """
        super().__init__()
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(dim, hidden),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )

    def forward(self, vector: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        return self.layers(vector)
