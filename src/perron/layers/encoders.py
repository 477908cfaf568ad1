"""Encoders: word vectors in, contextual states out."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from perron.arguments import (
    Device,
    bool_mask,
    check_at_least,
    check_lengths,
    check_share,
    has_values,
)
from perron.layers.groups import length_groups, take
from perron.layers.lstm import OneWayLSTM
from perron.registry import Registry

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
        self, dim: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        """Set up an encoder without parameters.

        Args:
            dim: Width of the word vectors.
            device: Without effect; every encoder takes it.
            dtype: Without effect; every encoder takes it.
        """
        super().__init__()
        self.out_dim = dim

    def encode(self, states: Tensor, mask: Tensor) -> Tensor:
        return states

    def _encode_flat(self, states: Tensor, lengths: list[int]) -> Tensor:
        return states


class BiLSTMEncoder(Encoder):
    """[→h_i ; ←h_i], each direction of width ``hidden``.

    Two networks, each of which reads words first and padding last: the second gets
    every text turned round within its own length. So padding changes no word's state,
    without packed sequences, which cost twice the time per word on a CPU (torch 2.13)
    and do not export.
    """

    recipe_name = "bilstm"
    width_option = "hidden"

    def __init__(
        self,
        dim: int,
        hidden: int = 300,
        layers: int = 1,
        dropout: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up both directions.

        Args:
            dim: Width of the word vectors.
            hidden: Width of each direction.
            layers: Number of layers, each reading both directions of the one below.
            dropout: Dropout between layers.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(1, hidden=hidden, layers=layers)
        check_share(dropout=dropout)
        self.out_dim = 2 * hidden
        self.dropout = nn.Dropout(dropout)
        widths = [dim] + [2 * hidden] * (layers - 1)
        factory: Any = {"device": device, "dtype": dtype}
        self.onward = _stack(widths, hidden, factory)
        self.homeward = _stack(widths, hidden, factory)

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


def _stack(widths: list[int], hidden: int, factory: Any) -> nn.ModuleList:
    return nn.ModuleList(OneWayLSTM(width, hidden, **factory) for width in widths)


def _turned(mask: Bool[Tensor, "b n"]) -> Tensor:
    """Return for each cell which cell comes there when words stand in reverse."""
    position = torch.arange(mask.shape[1], device=mask.device)
    last = mask.sum(1, keepdim=True) - 1
    return torch.where(mask, last - position, position)


def _reorder(states: Float[Tensor, "b n d"], order: Tensor) -> Tensor:
    return states.gather(1, order.unsqueeze(-1).expand_as(states))


class CNNEncoder(Encoder):
    """relu(W · [h_{i-k} … h_{i+k}] + b), for several widths side by side.

    With max pooling this is the CNN of Kim (2014), "non-static" where word vectors are
    tuned: widths 3, 4 and 5, with 100 filters each. Beyond a text's ends are zeros.
    """

    recipe_name = "cnn"
    width_option = "filters"

    def __init__(
        self,
        dim: int,
        widths: tuple[int, ...] = (3, 4, 5),
        filters: int = 100,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up one convolution for each width.

        Args:
            dim: Width of the word vectors.
            widths: Number of words that a filter sees, for each group of filters.
            filters: Number of filters of each width.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        if not widths:
            raise ValueError("widths must have at least one number, got none.")
        check_at_least(1, filters=filters, widths=min(widths))
        self.out_dim = filters * len(widths)
        self.widths = widths
        self.convolutions = nn.ModuleList(
            nn.Conv1d(dim, filters, width, device=device, dtype=dtype)
            for width in widths
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


class TransformerEncoder(Encoder):
    """A linear layer to ``hidden``, sinusoidal positions, then transformer layers.

    Normalization comes first in each layer, which trains without a warm-up.
    """

    recipe_name = "transformer"
    width_option = "hidden"

    def __init__(
        self,
        dim: int,
        hidden: int = 256,
        layers: int = 2,
        heads: int = 4,
        dropout: float = 0.1,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up the layers.

        Args:
            dim: Width of the word vectors.
            hidden: Width of the states; a multiple of heads, and even.
            layers: Number of layers.
            heads: Number of attention heads in each layer.
            dropout: Dropout inside the layers.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(1, hidden=hidden, layers=layers, heads=heads)
        check_share(dropout=dropout)
        if hidden % heads or hidden % 2:
            raise ValueError(
                f"hidden must be even and a multiple of heads = {heads}, got {hidden}."
            )
        self.out_dim = hidden
        factory: Any = {"device": device, "dtype": dtype}
        self.enter = nn.Linear(dim, hidden, **factory)
        layer = nn.TransformerEncoderLayer(
            hidden,
            heads,
            4 * hidden,
            dropout,
            batch_first=True,
            norm_first=True,
            **factory,
        )
        # Nested tensors would change the shape of what comes out.
        self.layers = nn.TransformerEncoder(
            layer,
            layers,
            norm=nn.LayerNorm(hidden, **factory),
            enable_nested_tensor=False,
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
