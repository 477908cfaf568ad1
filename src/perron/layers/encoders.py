"""Encoders that turn token vectors into contextual states."""

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

# Maximum fraction of padding in a group. Smaller values split texts into tiny groups,
# whose small matrix products cost more time than the padding they save.
MAX_PADDING = 0.1


class LengthGroups(NamedTuple):
    """Mapping between the tokens of a flat batch and groups of padded texts.

    The cells of all groups are concatenated: first those of group 0 in row-major order,
    then those of group 1, and so on.

    Attributes:
        shapes: Number of texts and padded length of each group.
        lengths: Lengths of the texts in each group.
        token_to_cell: Index of the cell that holds each token.
        cell_to_token: Index of the token in each cell, -1 for padding.
    """

    shapes: list[tuple[int, int]]
    lengths: list[Int[Tensor, " texts"]]
    token_to_cell: Int[Tensor, " tokens"]
    cell_to_token: Int[Tensor, " cells"]


def group_by_length(
    lengths: Sequence[int], max_padding: float = MAX_PADDING
) -> LengthGroups:
    """Group texts of similar length to limit the padding of each group.

    Texts are added from longest to shortest. A new group starts when the next text
    would raise the fraction of padding above the limit. Empty texts are left out.

    Args:
        lengths: Number of tokens in each text.
        max_padding: Maximum fraction of padding in a group.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    bounds = _group_bounds(sizes[order].tolist(), max_padding)
    shapes, group_lengths, groups = [], [], []
    for begin, end in pairwise(bounds):
        rows = order[begin:end]
        longest = int(sizes[rows[0]])
        position = np.arange(longest)
        tokens = starts[rows, None] + position
        groups.append(np.where(position < sizes[rows, None], tokens, -1).ravel())
        shapes.append((len(rows), longest))
        group_lengths.append(torch.from_numpy(sizes[rows]))
    cell_to_token = np.concatenate(groups) if groups else np.zeros(0, np.int64)
    token_to_cell = np.empty(int(sizes.sum()), np.int64)
    filled = np.flatnonzero(cell_to_token >= 0)
    token_to_cell[cell_to_token[filled]] = filled
    return LengthGroups(
        shapes,
        group_lengths,
        torch.from_numpy(token_to_cell),
        torch.from_numpy(cell_to_token),
    )


def _group_bounds(sizes: list[int], max_padding: float) -> list[int]:
    """Return the start of each group and the end of the last; sizes are descending."""
    bounds, longest, tokens = [0], 0, 0
    for row, size in enumerate(sizes):
        cells = longest * (row + 1 - bounds[-1])
        if row and tokens + size < (1 - max_padding) * cells:
            bounds.append(row)
            tokens = 0
        if row == bounds[-1]:
            longest = size
        tokens += size
    return [*bounds, len(sizes)] if sizes else [0]


def gather_or_zero(
    rows: Float[Tensor, "n d"], index: Int[Tensor, " m"], inverse: Int[Tensor, " n"]
) -> Float[Tensor, "m d"]:
    """Return ``rows[index]``, with zeros where the index is -1.

    Each row is used at most once. The gradient is therefore the same operation with
    the two indices swapped, and needs no scatter-add.

    Args:
        rows: Rows to gather.
        index: Row at each output position, -1 for zeros.
        inverse: Output position of each row, -1 if the row is not used.
    """
    gathered: Tensor = _GatherOrZero.apply(rows, index, inverse)
    return gathered


class _GatherOrZero(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(index, inverse)
        if not len(rows):
            return rows.new_zeros(len(index), rows.shape[1])
        gathered = rows.index_select(0, index.clamp(min=0))
        return gathered.masked_fill_((index < 0).unsqueeze(1), 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        index, inverse = ctx.saved_tensors
        return gather_or_zero(grad, inverse, index), None, None


ENCODERS: Registry[type["Encoder"]] = Registry("encoder")
"""Registered encoders, by recipe name."""


class Encoder(nn.Module, ABC):
    """Base class for encoders, which contextualize each token within its text.

    The input has the same form as for aggregators: padded (B, N, E) with a mask, or
    flat (M, E) with lengths. Flat texts are padded in groups of similar length, so
    little time is spent on padding.

    A subclass sets ``out_dim`` and implements `encode`. If it defines ``recipe_name``,
    recipes can use it as soon as its module is imported. Its settings are the arguments
    of its constructor.

    Attributes:
        recipe_name: Name in recipes. None if the class cannot be used in recipes.
        width_option: Name of the option that sets the width of the states, if any.
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
        """Return the contextual states, padded or flat like the input.

        Args:
            states: Token vectors, padded (B, N, E), or flat (M, E) with lengths.
            mask: True (or 1) for tokens, False (or 0) for padding; (B, N). The tokens
                must come first in each row. Defaults to no padding. Output states at
                padding positions are undefined.
            lengths: Number of tokens in each text, (B), for flat states.
        """
        if lengths is not None:
            if mask is not None:
                raise ValueError(
                    "mask must be None for flat states, which have no padding."
                )
            if states.ndim != 2:
                raise ValueError(
                    f"states must have shape (M, E), got {tuple(states.shape)}. For "
                    "padded states, pass a mask instead of lengths."
                )
            counts = check_lengths(states, lengths).tolist()
            return self._encode_flat(states, counts)
        if states.ndim != 3:
            raise ValueError(
                f"states must have shape (B, N, E), got {tuple(states.shape)}. For "
                "flat states, pass lengths."
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
        """Encode padded texts.

        The tokens come first in each row, followed by zeros. B and N are at least 1,
        but a text may be empty.
        """

    def _encode_flat(self, states: Tensor, lengths: list[int]) -> Tensor:
        if not len(states):
            return states.new_zeros(0, self.out_dim)
        groups = group_by_length(lengths)
        token_to_cell = groups.token_to_cell.to(states.device)
        cell_to_token = groups.cell_to_token.to(states.device)
        padded = gather_or_zero(states, cell_to_token, token_to_cell)
        parts = padded.split([texts * length for texts, length in groups.shapes])
        encoded = []
        for part, shape, sizes in zip(
            parts, groups.shapes, groups.lengths, strict=True
        ):
            mask = (torch.arange(shape[1]) < sizes.unsqueeze(1)).to(states.device)
            encoded.append(self.encode(part.unflatten(0, shape), mask).flatten(0, 1))
        return gather_or_zero(torch.cat(encoded), token_to_cell, cell_to_token)


def _check_mask(states: Tensor, mask: Tensor) -> Tensor:
    if mask.shape != states.shape[:2]:
        raise ValueError(
            f"mask must have shape {tuple(states.shape[:2])}, got {tuple(mask.shape)}."
        )
    mask = bool_mask(mask)
    if has_values(mask) and (mask[:, 1:] > mask[:, :-1]).any():
        raise ValueError("mask must have all tokens before the padding in each row.")
    return mask


class NoEncoder(Encoder):
    """Encoder that returns the word vectors unchanged, without any context."""

    recipe_name = "none"

    def __init__(
        self, embed_dim: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        """Initialize an encoder without parameters.

        Args:
            embed_dim: Width of the word vectors.
            device: Ignored. Accepted for consistency with other encoders.
            dtype: Ignored. Accepted for consistency with other encoders.
        """
        super().__init__()
        self.out_dim = embed_dim

    def encode(self, states: Tensor, mask: Tensor) -> Tensor:
        return states

    def _encode_flat(self, states: Tensor, lengths: list[int]) -> Tensor:
        return states


class CNNEncoder(Encoder):
    """Convolutional encoder: relu(W · [h_{i-k} … h_{i+k}] + b) for each kernel size.

    With max pooling, this is the CNN of Kim (2014): kernel sizes 3, 4 and 5 with 100
    filters each, "non-static" if the word vectors are fine-tuned. Texts are padded with
    zeros at both ends.
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
        """Initialize one convolution per kernel size.

        Args:
            embed_dim: Width of the word vectors.
            kernel_sizes: Kernel sizes, in words.
            num_filters: Number of filters per kernel size.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        if not kernel_sizes:
            raise ValueError("kernel_sizes must have at least one number, got none.")
        check_at_least(1, num_filters=num_filters, kernel_sizes=min(kernel_sizes))
        self.out_dim = num_filters * len(kernel_sizes)
        self.kernel_sizes = kernel_sizes
        self.convolutions = nn.ModuleList(
            nn.Conv1d(embed_dim, num_filters, size, device=device, dtype=dtype)
            for size in kernel_sizes
        )

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        channels = states.mT  # (B, E, N)
        maps = []
        for size, convolution in zip(self.kernel_sizes, self.convolutions, strict=True):
            before = (size - 1) // 2
            maps.append(convolution(F.pad(channels, (before, size - 1 - before))))
        return torch.cat(maps, 1).relu().mT


class TransformerEncoder(Encoder):
    """Transformer encoder: input projection, sinusoidal positions, transformer layers.

    The layers are pre-norm, so they train without learning rate warmup.
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
        """Initialize the projection and the layers.

        Args:
            embed_dim: Width of the word vectors.
            hidden_dim: Width of the states, even and a multiple of ``num_heads``.
            num_layers: Number of layers.
            num_heads: Number of attention heads per layer.
            dropout: Dropout probability inside the layers.
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
        # Nested tensors would change the shape of the output.
        self.layers = nn.TransformerEncoder(
            layer,
            num_layers,
            norm=nn.LayerNorm(hidden_dim, **factory),
            enable_nested_tensor=False,
        )

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        projected = self.input_projection(states)
        inputs = projected + _positional_encoding(projected)
        # An empty text would have nothing to attend to, which gives NaN. Let it attend
        # to its padding; the output is not used.
        ignored = ~mask & mask.any(1, keepdim=True)
        return self.layers(inputs, src_key_padding_mask=ignored)


def _positional_encoding(states: Float[Tensor, "b n d"]) -> Float[Tensor, "n d"]:
    """Return sines of decreasing frequency, then cosines (Vaswani et al. 2017, 3.5)."""
    count, width = states.shape[1:]
    exponent = torch.arange(0, width, 2, device=states.device) / width
    angle = torch.arange(count, device=states.device).unsqueeze(1) * torch.exp(
        -math.log(10_000.0) * exponent
    )
    return torch.cat([angle.sin(), angle.cos()], -1).to(states.dtype)
