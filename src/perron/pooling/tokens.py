"""Batches of tokens, padded or ragged, with reductions over each text.

Per-token operations act on the last axis of ``states`` in both layouts, and reductions
over a text are methods of the batch. An aggregator is therefore written only once, and
padding costs nothing where it can be avoided. Eager calls on the CPU use the ragged
layout. Traced graphs are padded, because their shapes must not depend on the mask.
Batches on other devices are padded as well, because removing padding would require a
synchronization.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd import Function

from perron.kernels import Kernels, is_eager, reductions_torch, select


class TokenBatch(ABC):
    """Tokens of B texts.

    In shapes, "(…, K)" stands for (B, N, K) in padded and (M, K) in ragged batches.

    Attributes:
        states: (…, D), with zeros as padding if the batch is padded, and with the
            concatenated tokens of all texts if it is ragged.
        mask: (B, N), True on tokens.
    """

    def __init__(self, states: Tensor, mask: Bool[Tensor, "b n"]) -> None:
        self.states = states
        self.mask = mask

    @abstractmethod
    def to_padded(self, values: Tensor) -> Tensor:
        """Convert (…, K) to (B, N, K), with zeros as padding."""

    @abstractmethod
    def to_ragged(self, values: Float[Tensor, "b n k"]) -> Tensor:
        """Convert (B, N, K) to (…, K), the layout of the states."""

    @abstractmethod
    def softmax(self, scores: Tensor) -> Tensor:
        """Return the softmax of (…, K) over the tokens of each text."""

    @abstractmethod
    def logsumexp(self, scores: Tensor) -> Float[Tensor, "b k"]:
        """Return log Σ_i exp s_i of (…, K) over the tokens of each text."""

    @abstractmethod
    def sum(self, values: Tensor) -> Float[Tensor, "b k"]:
        """Return the sum of (…, K) over the tokens of each text."""

    @abstractmethod
    def max(self) -> Float[Tensor, "b d"]:
        """Return the maximum of the states over each text; zero for an empty text."""

    @abstractmethod
    def weighted_sum(
        self, weights: Tensor, values: Tensor | None = None
    ) -> Float[Tensor, "b h d"]:
        """Return Σ_i α_i x_i of each text for weights (…, H) and values (…, D).

        The values default to the states.
        """

    @abstractmethod
    def broadcast(self, values: Float[Tensor, "b k"]) -> Tensor:
        """Broadcast per-text values to tokens, in a shape compatible with (…, K)."""

    def mean_weights(self) -> Tensor:
        """Return weights (…, 1) equal to one over the number of tokens."""
        return self.softmax(self.states.new_zeros(*self.states.shape[:-1], 1))


class PaddedTokens(TokenBatch):
    """Padded states (B, N, D), for traced graphs and devices other than the CPU."""

    def to_padded(self, values: Tensor) -> Tensor:
        return values.masked_fill(~self.mask.unsqueeze(-1), 0)

    def to_ragged(self, values: Float[Tensor, "b n k"]) -> Tensor:
        return values

    def softmax(self, scores: Tensor) -> Tensor:
        return self.to_padded(self._mask_padding(scores).softmax(1))

    def logsumexp(self, scores: Tensor) -> Float[Tensor, "b k"]:
        return self._mask_padding(scores).logsumexp(1)

    def sum(self, values: Tensor) -> Float[Tensor, "b k"]:
        return self.to_padded(values).sum(1)

    def max(self) -> Float[Tensor, "b d"]:
        if self.mask.shape[1] == 0:
            return self.states.sum(1)  # zeros
        empty = ~self.mask.any(1, keepdim=True)
        return self._mask_padding(self.states).amax(1).masked_fill(empty, 0)

    def weighted_sum(
        self, weights: Tensor, values: Tensor | None = None
    ) -> Float[Tensor, "b h d"]:
        return weights.mT @ (self.states if values is None else values)

    def broadcast(self, values: Float[Tensor, "b k"]) -> Tensor:
        return values.unsqueeze(1)

    def _mask_padding(self, scores: Tensor) -> Tensor:
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~self.mask.unsqueeze(-1), lowest)


class RaggedTokens(TokenBatch):
    """Ragged states (M, D), the concatenated tokens of all texts."""

    @cached_property
    def sum_kernels(self) -> Kernels:
        """Kernels for sums over texts."""
        return select("segment_sum", self.states)

    @cached_property
    def counts(self) -> Int[Tensor, " b"]:
        """Number of tokens in each text."""
        return self.mask.sum(1)

    @cached_property
    def positions(self) -> Int[Tensor, " m"] | None:
        """Index of each token among all B·N positions; None if there is no padding."""
        if len(self.states) == self.mask.numel():
            return None
        return self.mask.flatten().nonzero().squeeze(1)

    def to_padded(self, values: Tensor) -> Tensor:
        if self.positions is not None:
            values = _ScatterRows.apply(values, self.positions, self.mask.numel())
        return values.unflatten(0, self.mask.shape)

    def to_ragged(self, values: Float[Tensor, "b n k"]) -> Tensor:
        flat = values.flatten(0, 1)
        return (
            flat if self.positions is None else _GatherRows.apply(flat, self.positions)
        )

    def softmax(self, scores: Tensor) -> Tensor:
        if self.positions is None:
            return self.to_ragged(self.to_padded(scores).softmax(1))
        _, exps, totals = self._shifted_exp(scores)
        return exps / self.broadcast(totals)

    def logsumexp(self, scores: Tensor) -> Float[Tensor, "b k"]:
        maxima, _, totals = self._shifted_exp(scores)
        return maxima + totals.log()

    def sum(self, values: Tensor) -> Float[Tensor, "b k"]:
        return _SegmentSum.apply(values, self.counts, self.sum_kernels)

    def max(self) -> Float[Tensor, "b d"]:
        return _segment_max(self.states, self.counts)

    def weighted_sum(
        self, weights: Tensor, values: Tensor | None = None
    ) -> Float[Tensor, "b h d"]:
        values = self.states if values is None else values
        return _WeightedSegmentSum.apply(weights, values, self.counts, self.sum_kernels)

    def broadcast(self, values: Float[Tensor, "b k"]) -> Tensor:
        return _Broadcast.apply(values, self.counts, len(self.states), self.sum_kernels)

    def _shifted_exp(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return max_i s_i of each text, exp(s_i - max), and its sum over the text."""
        maxima = _segment_max(scores.detach(), self.counts)
        exps = (scores - self.broadcast(maxima)).exp()
        return maxima, exps, self.sum(exps)


def should_pack(states: Tensor) -> bool:
    """Return whether padding should be removed before pooling.

    This requires fast sums over texts, which plain torch does not have, and a mask that
    can be read without a device synchronization.
    """
    return is_eager(states) and select("segment_sum", states).backend == "numba"


def pack(states: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"]) -> RaggedTokens:
    """Remove the padding. The states are copied only if there is padding."""
    flat = states.flatten(0, 1)
    if mask.all():
        return RaggedTokens(flat, mask)
    positions = mask.flatten().nonzero().squeeze(1)
    return RaggedTokens(_GatherRows.apply(flat, positions), mask)


class _GatherRows(Function):
    """Gather distinct rows; backward copies them back instead of accumulating."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, positions: Tensor) -> Tensor:
        ctx.save_for_backward(positions)
        ctx.rows = len(x)
        return x.index_select(0, positions)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _ScatterRows.apply(grad, *ctx.saved_tensors, ctx.rows), None


class _ScatterRows(Function):
    """Scatter rows to distinct positions among zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, positions: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(positions)
        return x.new_zeros(rows, *x.shape[1:]).index_copy_(0, positions, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _GatherRows.apply(grad, *ctx.saved_tensors), None, None


class _SegmentSum(Function):
    """Sum over the tokens of each text; backward broadcasts to the tokens."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: Tensor, kernels: Kernels) -> Tensor:
        ctx.save_for_backward(counts)
        ctx.rows, ctx.kernels = len(x), kernels
        return kernels.forward(x.new_ones(len(x), 1), x, counts).squeeze(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (counts,) = ctx.saved_tensors
        return _Broadcast.apply(grad, counts, ctx.rows, ctx.kernels), None, None


class _Broadcast(Function):
    """Broadcast per-text values to tokens; backward sums over each text."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, counts: Tensor, rows: int, kernels: Kernels
    ) -> Tensor:
        ctx.save_for_backward(counts)
        ctx.kernels = kernels
        return x.index_select(0, reductions_torch.segment_ids(counts, rows))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (counts,) = ctx.saved_tensors
        return _SegmentSum.apply(grad, counts, ctx.kernels), None, None, None


class _WeightedSegmentSum(Function):
    """Compute v_th = Σ_i α_ih x_i over the tokens i of text t.

    Backward   ∂ℓ/∂α_ih = x_iᵀ g_th,  ∂ℓ/∂x_i = Σ_h α_ih g_th,  with g = ∂ℓ/∂v.
    Second     with create_graph=True, backward consists of differentiable operations.
    """

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, states: Tensor, counts: Tensor, kernels: Kernels
    ) -> Tensor:
        ctx.save_for_backward(weights, states, counts)
        ctx.kernels = kernels
        return kernels.forward(weights, states, counts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            grads = reductions_torch.segment_sum_backward(grad, *ctx.saved_tensors)
        else:
            grads = ctx.kernels.backward(grad, *ctx.saved_tensors)
        return (*grads, None, None)


def _segment_max(x: Tensor, counts: Tensor) -> Tensor:
    """Return the maximum over each text; zero for a text with no tokens."""
    if len(x) == 0:
        return x.sum(0).expand(len(counts), -1)  # zeros
    index = select("segment_argmax", x).forward(x.detach(), counts)  # (B, D)
    return _GatherMax.apply(x, index).masked_fill((counts == 0).unsqueeze(1), 0)


class _GatherMax(Function):
    """Gather x[index[t, d], d]; indices repeat only for texts with no tokens."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = len(x)
        return x.gather(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.rows, grad.shape[1]).scatter_add(0, index, grad), None
