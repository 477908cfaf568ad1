"""From the vector of a text to a score for each class."""

from jaxtyping import Float
from torch import Tensor, nn


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
