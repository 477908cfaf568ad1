"""Encoders: word vectors in, contextual states out."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from perron.arguments import (
    Device,
    bool_mask,
    check_at_least,
    check_fraction,
    check_lengths,
    has_values,
)
from perron.registry import Registry

# A tenth of a group's cells may be padding. Less makes groups of a few texts, whose
# small products run slower than the padding that they save.
MAX_PADDING = 0.1


class Groups(NamedTuple):
    """Where each word of a flat batch lies when texts are padded group by group.

    The groups' cells stand one after the other: the first group's (texts x words),
    then the second's. ``cells[w]`` is the cell of word w, ``words[c]`` the word of
    cell c, or -1 for padding.
    """

    shapes: list[tuple[int, int]]  # texts, words
    lengths: list[Int[Tensor, " texts"]]
    cells: Int[Tensor, " words"]
    words: Int[Tensor, " cells"]


def group_by_length(lengths: Sequence[int], max_padding: float = MAX_PADDING) -> Groups:
    """Group texts so that no group has a larger share of padding than is allowed.

    Longest first; a group ends where the next text would bring too much padding. Texts
    with no words are in no group.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    ends = _cuts(sizes[order].tolist(), max_padding)
    shapes, group_lengths, words = [], [], []
    for begin, end in pairwise(ends):
        rows = order[begin:end]
        longest = int(sizes[rows[0]])
        position = np.arange(longest)
        held = np.where(position < sizes[rows, None], starts[rows, None] + position, -1)
        shapes.append((len(rows), longest))
        group_lengths.append(torch.from_numpy(sizes[rows]))
        words.append(held.ravel())
    of_cell = np.concatenate(words) if words else np.zeros(0, np.int64)
    cells = np.empty(int(sizes.sum()), np.int64)
    filled = np.flatnonzero(of_cell >= 0)
    cells[of_cell[filled]] = filled
    return Groups(
        shapes, group_lengths, torch.from_numpy(cells), torch.from_numpy(of_cell)
    )


def _cuts(descending: list[int], max_padding: float) -> list[int]:
    """Return where groups begin, and the end of the last, for sizes in order."""
    cuts, longest, words = [0], 0, 0
    for row, size in enumerate(descending):
        cells = longest * (row + 1 - cuts[-1])
        if row and words + size < (1 - max_padding) * cells:
            cuts.append(row)
            words = 0
        if row == cuts[-1]:
            longest = size
        words += size
    return [*cuts, len(descending)] if descending else [0]


def take(
    rows: Float[Tensor, "n d"], index: Int[Tensor, " m"], inverse: Int[Tensor, " n"]
) -> Float[Tensor, "m d"]:
    """Return ``rows[index]``, zero where the index is -1.

    ``inverse`` is where each row went, -1 for nowhere: no row goes to two places, so
    that the gradient is the same operation the other way round, and needs no sums.
    """
    taken: Tensor = _TakeOrZero.apply(rows, index, inverse)
    return taken


class _TakeOrZero(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(index, inverse)
        if not len(rows):
            return rows.new_zeros(len(index), rows.shape[1])
        taken = rows.index_select(0, index.clamp(min=0))
        return taken.masked_fill_((index < 0).unsqueeze(1), 0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        index, inverse = ctx.saved_tensors
        return take(gradient, inverse, index), None, None


ENCODERS: Registry[type["Encoder"]] = Registry("encoder")
"""The encoders by their names in recipes."""


class Encoder(nn.Module, ABC):
    """Gives each word a state that has seen the other words of its text.

    Takes what aggregators take: padded (B, N, E) with a mask, or flat (M, E) with
    lengths. Flat words are padded in groups of texts of like length, so that little
    work is spent on padding. A subclass sets ``out_dim`` and writes `encode`. With a
    ``recipe_name`` of its own it can be named in recipes as soon as its module is
    imported, and its settings are the arguments of its constructor.

    Attributes:
        recipe_name: Name in recipes; None for a class that recipes cannot name.
        width_option: The option that is the width of the states, if there is one.
        out_dim: Width of the states.
    """

    recipe_name: ClassVar[str | None] = None
    width_option: ClassVar[str | None] = None
    out_dim: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("recipe_name") is not None:
            ENCODERS.register(cls.__dict__["recipe_name"], cls)

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
            mask: True (or 1) on tokens, False (or 0) on padding; (B, N). The tokens
                must come first in each row. Defaults to no padding. What the states
                under padding are is not promised.
            lengths: (B), the number of tokens of each text, for flat states.
        """
        if lengths is not None:
            if mask is not None:
                raise ValueError("flat states have no padding: leave out the mask")
            if states.ndim != 2:
                raise ValueError(
                    f"states must have shape (M, E), got {tuple(states.shape)}. Padded "
                    "states have a mask, not lengths."
                )
            counts = check_lengths(states, lengths).tolist()
            return self._encode_flat(states, counts)
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
        mask = _check_mask(states, mask)
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
        groups = group_by_length(lengths)
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


def _check_mask(states: Tensor, mask: Tensor) -> Tensor:
    if mask.shape != states.shape[:2]:
        raise ValueError(
            f"mask must have shape {tuple(states.shape[:2])}, got {tuple(mask.shape)}."
        )
    mask = bool_mask(mask)
    if has_values(mask) and (mask[:, 1:] > mask[:, :-1]).any():
        raise ValueError("words must come first in each row of the mask")
    return mask


class NoEncoder(Encoder):
    """Leave the word vectors as they are: no word sees another before pooling."""

    recipe_name = "none"

    def __init__(
        self, embed_dim: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        """Set up an encoder without parameters.

        Args:
            embed_dim: Width of the word vectors.
            device: Without effect; every encoder takes it.
            dtype: Without effect; every encoder takes it.
        """
        super().__init__()
        self.out_dim = embed_dim

    def encode(self, states: Tensor, mask: Tensor) -> Tensor:
        return states

    def _encode_flat(self, states: Tensor, lengths: list[int]) -> Tensor:
        return states


class CNNEncoder(Encoder):
    """relu(W · [h_{i-k} … h_{i+k}] + b), for several widths side by side.

    With max pooling this is the CNN of Kim (2014), "non-static" where word vectors are
    tuned: widths 3, 4 and 5, with 100 filters each. Beyond a text's ends are zeros.
    """

    recipe_name = "cnn"
    width_option = "num_filters"

    def __init__(
        self,
        embed_dim: int,
        kernel_sizes: tuple[int, ...] = (3, 4, 5),
        num_filters: int = 100,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up one convolution for each width.

        Args:
            embed_dim: Width of the word vectors.
            kernel_sizes: Number of words that a filter sees, for each group of num_filters.
            num_filters: Number of filters of each width.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        if not kernel_sizes:
            raise ValueError("widths must have at least one number, got none.")
        check_at_least(1, num_filters=num_filters, kernel_sizes=min(kernel_sizes))
        self.out_dim = num_filters * len(kernel_sizes)
        self.kernel_sizes = kernel_sizes
        self.convolutions = nn.ModuleList(
            nn.Conv1d(embed_dim, num_filters, width, device=device, dtype=dtype)
            for width in kernel_sizes
        )

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        words = states.mT  # (B, E, N)
        maps = []
        for width, convolution in zip(
            self.kernel_sizes, self.convolutions, strict=True
        ):
            before = (width - 1) // 2
            maps.append(convolution(F.pad(words, (before, width - 1 - before))))
        return torch.cat(maps, 1).relu().mT


class TransformerEncoder(Encoder):
    """A linear layer to ``hidden``, sinusoidal positions, then transformer layers.

    Normalization comes first in each layer, which trains without a warm-up.
    """

    recipe_name = "transformer"
    width_option = "hidden_dim"

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int = 256,
        num_layers: int = 2,
        num_heads: int = 4,
        dropout: float = 0.1,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up the layers.

        Args:
            embed_dim: Width of the word vectors.
            hidden_dim: Width of the states; a multiple of num_heads, and even.
            num_layers: Number of layers.
            num_heads: Number of attention heads in each layer.
            dropout: Dropout inside the layers.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(
            1, hidden_dim=hidden_dim, num_layers=num_layers, num_heads=num_heads
        )
        check_fraction(dropout=dropout)
        if hidden_dim % num_heads or hidden_dim % 2:
            raise ValueError(
                f"hidden_dim must be even and a multiple of num_heads = {num_heads}, "
                f"got {hidden_dim}."
            )
        self.out_dim = hidden_dim
        factory: Any = {"device": device, "dtype": dtype}
        self.input_projection = nn.Linear(embed_dim, hidden_dim, **factory)
        layer = nn.TransformerEncoderLayer(
            hidden_dim,
            num_heads,
            4 * hidden_dim,
            dropout,
            batch_first=True,
            norm_first=True,
            **factory,
        )
        # Nested tensors would change the shape of what comes out.
        self.layers = nn.TransformerEncoder(
            layer,
            num_layers,
            norm=nn.LayerNorm(hidden_dim, **factory),
            enable_nested_tensor=False,
        )

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        entered = self.input_projection(states)
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
