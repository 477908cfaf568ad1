"""The contract of every encoder: vectors of words in, states of words out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from perron.layers.groups import length_groups, take


class Encoder(nn.Module, ABC):
    """Gives each word a state that has seen the other words of its text.

    Takes what aggregators take: padded (B, N, E) with a mask, or flat (M, E) with
    lengths. Flat words are padded in groups of texts of like length, so that little
    work is spent on padding. A subclass sets `out_dim` and writes `encode`.
    """

    out_dim: int

    def forward(
        self,
        states: Tensor,
        mask: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
    ) -> Tensor:
        """Return the states, in the shape that the vectors came in.

        Args:
            states: (B, N, E); or flat, (M, E), with lengths.
            mask: (B, N), True on words, which come first in each row; every cell if
                not given. What the states under padding are is not promised.
            lengths: (B), the number of words of each text, for flat states.
        """
        if lengths is not None:
            if mask is not None:
                raise ValueError("flat states have no padding: leave out the mask")
            return self._encode_flat(states, _check_lengths(states, lengths))
        if states.ndim != 3:
            raise ValueError(
                f"states must have shape (B, N, E), but came as {tuple(states.shape)}; "
                "flat states need lengths"
            )
        if not states.numel():
            return states.new_zeros(*states.shape[:2], self.out_dim)
        if mask is None:
            mask = states.new_ones(states.shape[:2], dtype=torch.bool)
            return self.encode(states, mask)
        _check_mask(states, mask)
        return self.encode(states.masked_fill(~mask.unsqueeze(-1), 0), mask)

    @abstractmethod
    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        """Encode texts whose words come first in their rows, with zeros behind them.

        There is at least one text, and one cell in a row; a text may have no words.
        """

    def _encode_flat(self, states: Tensor, lengths: list[int]) -> Tensor:
        if not len(states):
            return states.new_zeros(0, self.out_dim)
        groups = length_groups(lengths)
        words, cells = groups.words.to(states.device), groups.cells.to(states.device)
        padded = take(states, words, cells)
        parts = padded.split([texts * width for texts, width in groups.shapes])
        encoded = []
        for part, shape, sizes in zip(
            parts, groups.shapes, groups.lengths, strict=True
        ):
            mask = (torch.arange(shape[1]) < sizes.unsqueeze(1)).to(states.device)
            encoded.append(self.encode(part.unflatten(0, shape), mask).flatten(0, 1))
        return take(torch.cat(encoded), cells, words)


def _check_lengths(states: Tensor, lengths: Tensor | Sequence[int]) -> list[int]:
    """Return the lengths as a list; refuse what does not fit the states."""
    counts = torch.as_tensor(lengths).tolist()
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise ValueError(f"lengths must be whole numbers from 0, but came as {counts}")
    if states.ndim != 2 or sum(counts) != len(states):
        raise ValueError(
            f"lengths add up to {sum(counts)} words, but the flat states came "
            f"with shape {tuple(states.shape)}"
        )
    return counts


def _check_mask(states: Tensor, mask: Tensor) -> None:
    if mask.dtype != torch.bool or mask.shape != states.shape[:2]:
        raise ValueError(
            f"mask must be bool of shape {tuple(states.shape[:2])}, but came as "
            f"{mask.dtype} of shape {tuple(mask.shape)}"
        )
    # A value that is looked at here cannot be traced.
    if not torch.compiler.is_compiling() and (mask[:, 1:] > mask[:, :-1]).any():
        raise ValueError("words must come first in each row of the mask")


class NoEncoder(Encoder):
    """Leave the word vectors as they are: no word sees another before pooling."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.out_dim = dim

    def encode(self, states: Tensor, mask: Tensor) -> Tensor:
        return states

    def _encode_flat(self, states: Tensor, lengths: list[int]) -> Tensor:
        return states
