"""The words of a batch of texts, padded or side by side, and sums over each text.

Whatever acts on one word at a time acts on the last axis of ``states`` alike in both
forms. What brings the words of a text together is a method here. So an aggregator is
written once, and padding costs nothing where it need not be there: eager calls on the
CPU have their words side by side; traced graphs, whose shapes must not depend on the
mask, and other devices, where packing would have to wait for the device, are padded.
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
    """The words of B texts.

    Attributes:
        states: (B, N, D), zero where there is no word; or (M, D), words only, text
            after text. "(…, K)" stands for either below.
        mask: (B, N), where the words are.
    """

    def __init__(self, states: Tensor, mask: Bool[Tensor, "b n"]) -> None:
        self.states = states
        self.mask = mask

    @abstractmethod
    def to_padded(self, values: Tensor) -> Tensor:
        """Return (B, N, K), zero where there is no word, of (…, K)."""

    @abstractmethod
    def to_ragged(self, values: Float[Tensor, "b n k"]) -> Tensor:
        """Return (…, K) of (B, N, K)."""

    @abstractmethod
    def softmax(self, scores: Tensor) -> Tensor:
        """Return the softmax (…, K) over the words of each text, of (…, K)."""

    @abstractmethod
    def logsumexp(self, scores: Tensor) -> Float[Tensor, "b k"]:
        """Return log Σ_i exp s_i over the words of each text, of (…, K)."""

    @abstractmethod
    def sum(self, values: Tensor) -> Float[Tensor, "b k"]:
        """Return the sum over the words of each text, of (…, K)."""

    @abstractmethod
    def max(self) -> Float[Tensor, "b d"]:
        """Return the largest of each coordinate of the states; 0 without words."""

    @abstractmethod
    def weighted_sum(
        self, weights: Tensor, values: Tensor | None = None
    ) -> Float[Tensor, "b h d"]:
        """Return Σ_i α_i x_i of each text for weights (…, H) and values (…, D).

        The values are the states if not given.
        """

    @abstractmethod
    def broadcast(self, values: Float[Tensor, "b k"]) -> Tensor:
        """Give each word what its text has; the result broadcasts to (…, K)."""

    def mean_weights(self) -> Tensor:
        """Return weights (…, 1) that are one over the number of words."""
        return self.softmax(self.states.new_zeros(*self.states.shape[:-1], 1))


class PaddedTokens(TokenBatch):
    """States (B, N, D), for traced graphs and devices other than the CPU."""

    def to_padded(self, values: Tensor) -> Tensor:
        return values.masked_fill(~self.mask.unsqueeze(-1), 0)

    def to_ragged(self, values: Float[Tensor, "b n k"]) -> Tensor:
        return values

    def softmax(self, scores: Tensor) -> Tensor:
        return self.to_padded(self._words_only(scores).softmax(1))

    def logsumexp(self, scores: Tensor) -> Float[Tensor, "b k"]:
        return self._words_only(scores).logsumexp(1)

    def sum(self, values: Tensor) -> Float[Tensor, "b k"]:
        return self.to_padded(values).sum(1)

    def max(self) -> Float[Tensor, "b d"]:
        if self.mask.shape[1] == 0:
            return self.states.sum(1)  # zeros
        no_words = ~self.mask.any(1, keepdim=True)
        return self._words_only(self.states).amax(1).masked_fill(no_words, 0)

    def weighted_sum(
        self, weights: Tensor, values: Tensor | None = None
    ) -> Float[Tensor, "b h d"]:
        return weights.mT @ (self.states if values is None else values)

    def broadcast(self, values: Float[Tensor, "b k"]) -> Tensor:
        return values.unsqueeze(1)

    def _words_only(self, scores: Tensor) -> Tensor:
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~self.mask.unsqueeze(-1), lowest)


class RaggedTokens(TokenBatch):
    """States (M, D): the words that the mask is True for, in its order."""

    @cached_property
    def sums(self) -> Kernels:
        """The kernels of sums over texts."""
        return select("segment_sum", self.states)

    @cached_property
    def counts(self) -> Int[Tensor, " b"]:
        """The number of words of each text."""
        return self.mask.sum(1)

    @cached_property
    def places(self) -> Int[Tensor, " m"] | None:
        """Where each word is among all B·N; None if they are all words."""
        if len(self.states) == self.mask.numel():
            return None
        return self.mask.flatten().nonzero().squeeze(1)

    def to_padded(self, values: Tensor) -> Tensor:
        if self.places is not None:
            values = _Spread.apply(values, self.places, self.mask.numel())
        return values.unflatten(0, self.mask.shape)

    def to_ragged(self, values: Float[Tensor, "b n k"]) -> Tensor:
        flat = values.flatten(0, 1)
        return flat if self.places is None else _Take.apply(flat, self.places)

    def softmax(self, scores: Tensor) -> Tensor:
        if self.places is None:
            return self.to_ragged(self.to_padded(scores).softmax(1))
        _, shares, sums = self._shares(scores)
        return shares / self.broadcast(sums)

    def logsumexp(self, scores: Tensor) -> Float[Tensor, "b k"]:
        largest, _, sums = self._shares(scores)
        return largest + sums.log()

    def sum(self, values: Tensor) -> Float[Tensor, "b k"]:
        return _Total.apply(values, self.counts, self.sums)

    def max(self) -> Float[Tensor, "b d"]:
        return _largest(self.states, self.counts)

    def weighted_sum(
        self, weights: Tensor, values: Tensor | None = None
    ) -> Float[Tensor, "b h d"]:
        values = self.states if values is None else values
        return _Weigh.apply(weights, values, self.counts, self.sums)

    def broadcast(self, values: Float[Tensor, "b k"]) -> Tensor:
        return _OfText.apply(values, self.counts, len(self.states), self.sums)

    def _shares(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return max_i s_i of each text, exp(s_i - max), and the sum of these."""
        largest = _largest(scores.detach(), self.counts)
        shares = (scores - self.broadcast(largest)).exp()
        return largest, shares, self.sum(shares)


def is_packable(states: Tensor) -> bool:
    """Return whether padding should be removed before pooling.

    That needs fast sums over texts, which plain torch does not have, and words that can
    be found without waiting for a device.
    """
    return is_eager(states) and select("segment_sum", states).backend == "numba"


def pack(states: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"]) -> RaggedTokens:
    """Return the words side by side, a copy only if there is padding among them."""
    flat = states.flatten(0, 1)
    if mask.all():
        return RaggedTokens(flat, mask)
    places = mask.flatten().nonzero().squeeze(1)
    return RaggedTokens(_Take.apply(flat, places), mask)


class _Take(Function):
    """Rows at different places: backward writes them back, and need not add them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = len(x)
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Spread.apply(grad, *ctx.saved_tensors, ctx.rows), None


class _Spread(Function):
    """Rows to different places among zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(places)
        return x.new_zeros(rows, *x.shape[1:]).index_copy_(0, places, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Take.apply(grad, *ctx.saved_tensors), None, None


class _Total(Function):
    """The sum over the words of each text; backward gives each word what it has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: Tensor, kernels: Kernels) -> Tensor:
        ctx.save_for_backward(counts)
        ctx.words, ctx.kernels = len(x), kernels
        return kernels.forward(x.new_ones(len(x), 1), x, counts).squeeze(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (counts,) = ctx.saved_tensors
        return _OfText.apply(grad, counts, ctx.words, ctx.kernels), None, None


class _OfText(Function):
    """What its text has for each word; backward is the sum."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, counts: Tensor, words: int, kernels: Kernels
    ) -> Tensor:
        ctx.save_for_backward(counts)
        ctx.kernels = kernels
        return x.index_select(0, reductions_torch.segment_ids(counts, words))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (counts,) = ctx.saved_tensors
        return _Total.apply(grad, counts, ctx.kernels), None, None, None


class _Weigh(Function):
    """v_th = Σ_i α_ih x_i over the words i of text t.

    Backward   ∂ℓ/∂α_ih = x_iᵀ g_th,  ∂ℓ/∂x_i = Σ_h α_ih g_th,  with g = ∂ℓ/∂v.
    Twice      backward is then made of differentiable operations.
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
            slopes = reductions_torch.segment_sum_backward(grad, *ctx.saved_tensors)
        else:
            slopes = ctx.kernels.backward(grad, *ctx.saved_tensors)
        return (*slopes, None, None)


def _largest(x: Tensor, counts: Tensor) -> Tensor:
    """Return the largest of each coordinate over each text; zero without words."""
    if len(x) == 0:
        return x.sum(0).expand(len(counts), -1)  # zeros
    which = select("segment_argmax", x).forward(x.detach(), counts)  # (B, D)
    return _TakeAlong.apply(x, which).masked_fill((counts == 0).unsqueeze(1), 0)


class _TakeAlong(Function):
    """x[which[t, d], d]; no entry is taken twice, but for texts without words."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, which: Tensor) -> Tensor:
        ctx.save_for_backward(which)
        ctx.rows = len(x)
        return x.gather(0, which)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (which,) = ctx.saved_tensors
        return grad.new_zeros(ctx.rows, grad.shape[1]).scatter_add(0, which, grad), None
