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


class Words(ABC):
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
    def padded(self, values: Tensor) -> Tensor:
        """Return (B, N, K), zero where there is no word, of (…, K)."""

    @abstractmethod
    def packed(self, values: Float[Tensor, "b n k"]) -> Tensor:
        """Return (…, K) of (B, N, K)."""

    @abstractmethod
    def softmax(self, scores: Tensor) -> Tensor:
        """Return the softmax (…, H) over the words of each text, of (…, H)."""

    @abstractmethod
    def weigh(self, weights: Tensor) -> Float[Tensor, "b h d"]:
        """Return Σ_i α_i h_i of each text for weights (…, H)."""

    @abstractmethod
    def of_text(self, values: Float[Tensor, "b k"]) -> Tensor:
        """Give each word what its text has; the result broadcasts to (…, K)."""

    def mean_weights(self) -> Tensor:
        """Return weights (…, 1) that are one over the number of words."""
        return self.softmax(self.states.new_zeros(*self.states.shape[:-1], 1))


class PaddedWords(Words):
    """States (B, N, D), for traced graphs and devices other than the CPU."""

    def padded(self, values: Tensor) -> Tensor:
        return values.masked_fill(~self.mask.unsqueeze(-1), 0)

    def packed(self, values: Float[Tensor, "b n k"]) -> Tensor:
        return values

    def softmax(self, scores: Tensor) -> Tensor:
        absent = ~self.mask.unsqueeze(-1)
        scores = scores.masked_fill(absent, torch.finfo(scores.dtype).min)
        return scores.softmax(1).masked_fill(absent, 0)

    def weigh(self, weights: Tensor) -> Float[Tensor, "b h d"]:
        return weights.mT @ self.states

    def of_text(self, values: Float[Tensor, "b k"]) -> Tensor:
        return values.unsqueeze(1)


class PackedWords(Words):
    """States (M, D): the words that the mask is True for, in its order."""

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

    @cached_property
    def texts(self) -> Int[Tensor, " m"]:
        """The text of each word."""
        every = torch.arange(len(self.mask), device=self.mask.device)
        return every.repeat_interleave(self.counts, output_size=len(self.states))

    def padded(self, values: Tensor) -> Tensor:
        return self._pad(values, 0.0)

    def packed(self, values: Float[Tensor, "b n k"]) -> Tensor:
        flat = values.flatten(0, 1)
        return flat if self.places is None else _Take.apply(flat, self.places)

    def softmax(self, scores: Tensor) -> Tensor:
        lowest = torch.finfo(scores.dtype).min
        return self.packed(self._pad(scores, lowest).softmax(1))

    def weigh(self, weights: Tensor) -> Float[Tensor, "b h d"]:
        return _Weigh.apply(weights, self.states, self.counts, self.texts)

    def of_text(self, values: Float[Tensor, "b k"]) -> Tensor:
        return values[self.texts]

    def _pad(self, values: Tensor, fill: float) -> Tensor:
        if self.places is not None:
            values = _Spread.apply(values, self.places, self.mask.numel(), fill)
        return values.unflatten(0, self.mask.shape)


def pack(states: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"]) -> PackedWords:
    """Return the words side by side, a copy only if there is padding among them."""
    flat = states.flatten(0, 1)
    if mask.all():
        return PackedWords(flat, mask)
    places = mask.flatten().nonzero().squeeze(1)
    return PackedWords(_Take.apply(flat, places), mask)


class _Take(Function):
    """Rows at different places: backward writes them back, and need not add them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = len(x)
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return _Spread.apply(grad, places, ctx.rows, 0.0), None


class _Spread(Function):
    """Rows to different places among others that are filled with one number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, rows: int, fill: float) -> Tensor:
        ctx.save_for_backward(places)
        return x.new_full((rows, *x.shape[1:]), fill).index_copy_(0, places, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _Take.apply(grad, *ctx.saved_tensors), None, None, None


class _Weigh(Function):
    """v_th = Σ_i α_ih x_i over the words i of text t.

    Backward   ∂ℓ/∂α_ih = x_iᵀ g_th,  ∂ℓ/∂x_i = Σ_h α_ih g_th,  with g = ∂ℓ/∂v.
    Twice      backward is then made of differentiable operations.
    """

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, states: Tensor, counts: Tensor, texts: Tensor
    ) -> Tensor:
        ctx.save_for_backward(weights, states, counts, texts)
        if states.device.type == "cpu":
            from perron.pooling import weigh_cpu

            return weigh_cpu.forward(weights, states, counts)
        products = weights.unsqueeze(-1) * states.unsqueeze(-2)  # (M, H, D)
        sums = states.new_zeros(len(counts), *products.shape[1:])
        return sums.index_add_(0, texts, products)

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        weights, states, counts, texts = ctx.saved_tensors
        if states.device.type == "cpu" and not torch.is_grad_enabled():
            from perron.pooling import weigh_cpu

            return (*weigh_cpu.backward(grad, weights, states, counts), None, None)
        own = grad[texts]  # (M, H, D)
        to_weights = (own @ states.unsqueeze(-1)).squeeze(-1)
        return to_weights, (weights.unsqueeze(-2) @ own).squeeze(-2), None, None
