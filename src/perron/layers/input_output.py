"""The first and the last layer of a classifier."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from perron.arguments import Device, check_at_least, check_fraction


class WordEmbedding(nn.Module):
    """Look up a vector for each id, with dropout on the vectors while training.

    Vectors may be given (pretrained), and frozen or tuned with the rest.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int = 300,
        freeze: bool = False,
        dropout: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up random vectors of unit variance; see `set_vectors`.

        Args:
            vocab_size: Number of ids.
            embedding_dim: Width of a vector.
            freeze: Leave the vectors as they are while training.
            dropout: Share of entries set to zero.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(1, vocab_size=vocab_size, embedding_dim=embedding_dim)
        check_fraction(dropout=dropout)
        self.vectors = nn.Embedding(
            vocab_size, embedding_dim, device=device, dtype=dtype
        )
        self.vectors.weight.requires_grad_(not freeze)
        self.dropout = nn.Dropout(dropout)

    @property
    def embedding_dim(self) -> int:
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
        embed_dim: int,
        num_classes: int,
        hidden_dim: int = 300,
        dropout: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up two layers.

        Args:
            embed_dim: Width of a text's vector.
            num_classes: Number of classes.
            hidden_dim: Width of the hidden layer.
            dropout: Dropout before each layer.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(
            1, embed_dim=embed_dim, num_classes=num_classes, hidden_dim=hidden_dim
        )
        check_fraction(dropout=dropout)
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, num_classes, device=device, dtype=dtype),
        )

    def forward(self, vector: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        return self.layers(vector)
