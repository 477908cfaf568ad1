"""Input and output layers of a classifier: word embedding and classifier head."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from perron.arguments import Device, check_at_least, check_fraction


class WordEmbedding(nn.Module):
    """Embedding of token ids, with dropout on the vectors.

    Use `set_vectors` to load pretrained vectors. They are fine-tuned unless ``freeze``
    is set.
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
        """Initialize random vectors with unit variance.

        Args:
            vocab_size: Number of token ids.
            embedding_dim: Size of each embedding vector.
            freeze: Whether to keep the vectors fixed during training.
            dropout: Dropout probability for the entries of the vectors.
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
        """Size of each embedding vector."""
        return self.vectors.embedding_dim

    def set_vectors(self, vectors: Float[Tensor, "v e"]) -> None:
        """Copy pretrained vectors, one per token id, into the embedding."""
        expected = tuple(self.vectors.weight.shape)
        if tuple(vectors.shape) != expected:
            raise ValueError(
                f"vectors must have shape {expected}, got {tuple(vectors.shape)}."
            )
        self.vectors.load_state_dict({"weight": vectors})

    def forward(self, ids: Int[Tensor, "*words"]) -> Float[Tensor, "*words e"]:
        return self.dropout(self.vectors(ids))


class ClassifierHead(nn.Module):
    """Classifier head of the paper: dropout, linear, tanh, dropout, linear.

    Attributes:
        temperature: Number that the logits are divided by. See
            `perron.models.Classifier.set_temperature`.
    """

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
        """Initialize the two linear layers.

        Args:
            embed_dim: Width of the text vectors.
            num_classes: Number of classes.
            hidden_dim: Width of the hidden layer.
            dropout: Dropout probability before each linear layer.
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

        self.temperature = 1.0

    def forward(self, vector: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        logits = self.layers(vector)
        return logits if self.temperature == 1 else logits / self.temperature
