"""The average of the weights over the steps, which is often better than the last."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

FORGETTING = 8  # η: at first, the share of step s in the average grows as s^η


class WeightAverage:
    """An exponential moving average w̄ of the trained weights w.

        w̄_t = (1 - s_t) w̄_{t-1} + s_t w_t,   s_t = max(1 - x, 9 / (t + 8))

    for the steps t = 1, 2, … In the long run 1 - x is the share of the newest weights.
    Up to about step 9 / (1 - x) it is that of polynomial-decay averaging (Shamir and
    Zhang, 2013, η = 8), roughly a mean over the last tenth of all steps: s_1 = 1,
    so that the random weights before the first step have no part in w̄, and the bad ones
    soon after it are forgotten. (With Adam's correction w̄ would be the plain mean of
    all steps until about step 1 / (1 - x).)

    Frozen weights and buffers are not averaged: the model's own are taken. Processes
    that train together have the same weights, and so the same average.

    Args:
        model: on the device where it stays.
        keep: x, what stays of the average at each step.
    """

    def __init__(self, model: nn.Module, keep: float) -> None:
        self.keep = keep
        self._weights = {
            name: weight
            for name, weight in model.named_parameters()
            if weight.requires_grad
        }
        self.tensors = {
            name: weight.detach().clone() for name, weight in self._weights.items()
        }

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step; the first step is 1."""
        share = max(1 - self.keep, (FORGETTING + 1) / (step + FORGETTING))
        averages, weights = self.tensors.values(), self._weights.values()
        torch._foreach_lerp_(tuple(averages), tuple(weights), share)

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Let the model have the average; afterwards it has its own weights again."""
        own = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._put(self.tensors)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what ``tensors`` held."""
        for name, average in self.tensors.items():
            average.copy_(tensors[name])

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(values[name])
