"""Self-attention between the words of a text."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from perron.layers.encoder import Encoder


class TransformerEncoder(Encoder):
    """A linear layer to ``hidden``, sinusoidal positions, then transformer layers.

    Normalisation comes first in each layer, which trains without a warm-up.
    """

    def __init__(
        self,
        dim: int,
        hidden: int = 256,
        layers: int = 2,
        heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        """Set up the layers.

        Args:
            dim: width of the word vectors.
            hidden: width of the states; a multiple of heads, and even.
            layers: how many.
            heads: of attention in each layer.
            dropout: inside the layers.
        """
        super().__init__()
        if hidden % heads or hidden % 2:
            raise ValueError(
                f"hidden must be even and a multiple of heads = {heads}, but came as "
                f"{hidden}"
            )
        self.out_dim = hidden
        self.enter = nn.Linear(dim, hidden)
        layer = nn.TransformerEncoderLayer(
            hidden, heads, 4 * hidden, dropout, batch_first=True, norm_first=True
        )
        # Nested tensors would change the shape of what comes out.
        self.layers = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(hidden), enable_nested_tensor=False
        )

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        entered = self.enter(states)
        placed = entered + _positions(entered)
        # A text with no words would attend to nothing, which is NaN: let it see its
        # padding, which nobody reads.
        unseen = ~mask & mask.any(1, keepdim=True)
        return self.layers(placed, src_key_padding_mask=unseen)


def _positions(states: Float[Tensor, "b n d"]) -> Float[Tensor, "n d"]:
    """Vaswani et al. (2017), section 3.5: sines of falling frequency, then cosines."""
    count, width = states.shape[1:]
    exponent = torch.arange(0, width, 2, device=states.device) / width
    angle = torch.arange(count, device=states.device).unsqueeze(1) * torch.exp(
        -math.log(10_000.0) * exponent
    )
    return torch.cat([angle.sin(), angle.cos()], -1).to(states.dtype)
