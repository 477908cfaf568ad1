"""A recurrent network that reads each text in both directions."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from perron.layers.encoder import Encoder
from perron.layers.lstm import OneWayLSTM


class BiLSTMEncoder(Encoder):
    """[→h_i ; ←h_i], each direction of width ``hidden``.

    Two networks, each of which reads words first and padding last: the second gets
    every text turned round within its own length. So padding changes no word's state,
    without packed sequences, which cost twice the time per word on a CPU (torch 2.13)
    and do not export.
    """

    def __init__(
        self, dim: int, hidden: int = 300, layers: int = 1, dropout: float = 0.0
    ) -> None:
        """Set up both directions.

        Args:
            dim: width of the word vectors.
            hidden: width of each direction.
            layers: how many, each reading both directions of the one below.
            dropout: between layers.
        """
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers must be at least 1, but came as {layers}")
        self.out_dim = 2 * hidden
        self.dropout = nn.Dropout(dropout)
        widths = [dim] + [2 * hidden] * (layers - 1)
        self.onward = _stack(widths, hidden)
        self.homeward = _stack(widths, hidden)

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        turned = _turned(mask)
        for depth, (onward, back) in enumerate(
            zip(self.onward, self.homeward, strict=True)
        ):
            if depth:
                states = self.dropout(states)
            ahead = onward(states)
            behind = back(_reorder(states, turned))
            states = torch.cat([ahead, _reorder(behind, turned)], -1)
        return states


def _stack(widths: list[int], hidden: int) -> nn.ModuleList:
    return nn.ModuleList(OneWayLSTM(width, hidden) for width in widths)


def _turned(mask: Bool[Tensor, "b n"]) -> Tensor:
    """Return for each cell which cell comes there when words stand in reverse."""
    position = torch.arange(mask.shape[1], device=mask.device)
    last = mask.sum(1, keepdim=True) - 1
    return torch.where(mask, last - position, position)


def _reorder(states: Float[Tensor, "b n d"], order: Tensor) -> Tensor:
    return states.gather(1, order.unsqueeze(-1).expand_as(states))
