"""A convolution over neighbouring words."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from perron.layers.encoder import Encoder


class CNNEncoder(Encoder):
    """relu(W · [h_{i-k} … h_{i+k}] + b), for several widths side by side.

    With max pooling this is the CNN of Kim (2014), "non-static" where word vectors are
    tuned: widths 3, 4 and 5, with 100 filters each. Beyond a text's ends are zeros.
    """

    def __init__(
        self, dim: int, widths: tuple[int, ...] = (3, 4, 5), filters: int = 100
    ) -> None:
        """Set up one convolution for each width.

        Args:
            dim: width of the word vectors.
            widths: how many words a filter sees.
            filters: of each width.
        """
        super().__init__()
        self.out_dim = filters * len(widths)
        self.widths = widths
        self.convolutions = nn.ModuleList(
            nn.Conv1d(dim, filters, width) for width in widths
        )

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        words = states.mT  # (B, E, N)
        maps = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            before = (width - 1) // 2
            maps.append(convolution(F.pad(words, (before, width - 1 - before))))
        return torch.cat(maps, 1).relu().mT
