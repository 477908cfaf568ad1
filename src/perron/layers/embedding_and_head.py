"""The first and the last layer of a classifier."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from perron.arguments import Device, check_at_least, check_share


class WordEmbedding(nn.Module):
    """Look up a vector for each id, with dropout on the vectors while training.

    Vectors may be given (pretrained), and frozen or tuned with the rest.
    """

    def __init__(
        self,
        vocabulary: int,
        dim: int = 300,
        freeze: bool = False,
        dropout: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up random vectors of unit variance; see `set_vectors`.

        Args:
            vocabulary: Number of ids.
            dim: Width of a vector.
            freeze: Leave the vectors as they are while training.
            dropout: Share of entries set to zero.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(1, vocabulary=vocabulary, dim=dim)
        check_share(dropout=dropout)
        self.vectors = nn.Embedding(vocabulary, dim, device=device, dtype=dtype)
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
        self,
        dim: int,
        classes: int,
        hidden: int = 300,
        dropout: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up two layers.

        Args:
            dim: Width of a text's vector.
            classes: Number of classes.
            hidden: Width of the hidden layer.
            dropout: Dropout before each layer.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(1, dim=dim, classes=classes, hidden=hidden)
        check_share(dropout=dropout)
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(dim, hidden, device=device, dtype=dtype),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes, device=device, dtype=dtype),
        )

    def forward(self, vector: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        return self.layers(vector)
