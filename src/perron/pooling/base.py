"""The contract of every aggregator: states and a mask in, one vector a text out."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from perron.solver import SolverInfo


class Pooled(NamedTuple):
    """What pooling found. ``None`` means that this aggregator has no such thing."""

    vector: Float[Tensor, "b out"]
    weights: Float[Tensor, "b n"] | None = None  # mean of head_weights
    edges: Float[Tensor, "b n n"] | None = None  # from j to i; mean of head_edges
    info: SolverInfo | None = None  # a value for each text and head: (B, H)
    head_weights: Float[Tensor, "b h n"] | None = None
    head_edges: Float[Tensor, "b h n n"] | None = None


class Aggregator(nn.Module, ABC):
    """Pools the states of a text's words into one vector.

    `forward` keeps the promises that all aggregators share: the inputs are left alone;
    what lies under the padding is never read; a text with no words gets a zero vector,
    zero weights and zero gradient; half precision is pooled in float32. What is left
    for a subclass is `aggregate`, and to set `out_dim`.
    """

    out_dim: int

    def __init__(self, dim: int) -> None:
        super().__init__()
        if dim < 1:
            raise ValueError(f"dim must be at least 1, but came as {dim}")
        self.dim = dim
        self.out_dim = dim

    def forward(
        self, states: Tensor, mask: Tensor | None = None, *, need_edges: bool = False
    ) -> Pooled:
        """Pool each text.

        Args:
            states: (B, N, D) with D = ``dim``.
            mask: (B, N), True on words, any pattern; every word if not given.
            need_edges: return the word graph too, if this aggregator has one.
        """
        mask = self._check(states, mask)
        working = torch.float64 if states.dtype == torch.float64 else torch.float32
        with _without_autocast(states.device.type):
            words = states.masked_fill(~mask.unsqueeze(-1), 0).to(working)
            pooled = self.aggregate(words, mask, need_edges)
        if states.dtype == working:
            return pooled
        return Pooled(*(_narrow(value, states.dtype) for value in pooled))

    @abstractmethod
    def aggregate(
        self,
        states: Float[Tensor, "b n d"],
        mask: Bool[Tensor, "b n"],
        need_edges: bool,
    ) -> Pooled:
        """Pool states that are float32 or float64, and zero where the mask is False."""

    def reset_parameters(self) -> None:
        """Draw all parameters anew; here there are none."""

    def _check(self, states: Tensor, mask: Tensor | None) -> Tensor:
        if states.ndim != 3 or states.shape[-1] != self.dim:
            raise ValueError(
                f"states must have shape (B, N, {self.dim}), but came as "
                f"{tuple(states.shape)}"
            )
        if not states.is_floating_point():
            raise ValueError(
                f"states must be floating point, but came as {states.dtype}"
            )
        if mask is None:
            return states.new_ones(states.shape[:2], dtype=torch.bool)
        if mask.dtype != torch.bool:
            raise ValueError(
                f"mask must be bool, True on words, but came as {mask.dtype}; "
                "attention masks of 0 and 1 become one with .bool()"
            )
        if mask.shape != states.shape[:2]:
            raise ValueError(
                f"mask must have shape {tuple(states.shape[:2])} to fit states of "
                f"shape {tuple(states.shape)}, but came as {tuple(mask.shape)}"
            )
        if mask.device != states.device:
            raise ValueError(
                f"mask is on {mask.device}, but states are on {states.device}"
            )
        return mask


def _without_autocast(device: str) -> AbstractContextManager[None]:
    if torch.amp.is_autocast_available(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def _narrow(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) else value


def project(layer: nn.Linear, states: Float[Tensor, "*batch d"]) -> Tensor:
    """Apply a layer in the precision of the states, whatever its own."""
    if layer.weight.dtype == states.dtype:
        return layer(states)
    bias = None if layer.bias is None else layer.bias.to(states.dtype)
    return F.linear(states, layer.weight.to(states.dtype), bias)


def masked_softmax(
    scores: Float[Tensor, "*batch n"], mask: Bool[Tensor, "*#batch n"]
) -> Float[Tensor, "*batch n"]:
    """Softmax over the last axis where the mask is True; zeros where it never is."""
    lowest = torch.finfo(scores.dtype).min
    weights = scores.masked_fill(~mask, lowest).softmax(-1)
    return weights.masked_fill(~mask, 0)


def weighted_sum(
    weights: Float[Tensor, "b h n"], states: Float[Tensor, "b n d"]
) -> Pooled:
    """Concatenate Σ_i α_i h_i of each head."""
    return Pooled(
        vector=(weights @ states).flatten(1),
        weights=weights.mean(1),
        head_weights=weights,
    )
