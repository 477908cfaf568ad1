"""The state of a training run: schedule, early stopping and averaged weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from perron.training.recipe import TrainingSettings


@dataclass
class Standing:
    """All numbers of a run that change from step to step; a checkpoint holds them."""

    batch_size: int
    epoch: int = 0  # of the batch that comes next
    position: int = 0  # of that batch in its epoch
    step: int = 0  # batches learnt from in all
    best_epoch: int | None = None
    best_accuracy: float = -1.0
    best_loss: float | None = None
    without_best: int = 0  # epochs
    finished: bool = False
    # Sums over the epoch so far.
    loss: float = 0.0
    right: int = 0
    seen: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return what the constructor takes."""
        return asdict(self)

    def count(self, loss: float, right: int, seen: int, seconds: float) -> None:
        """Note a batch that was learnt from; ``loss`` is the sum over its texts."""
        self.loss += loss
        self.right += right
        self.seen += seen
        self.seconds += seconds
        self.step += 1
        self.position += 1

    def end_epoch(
        self, accuracy: float, loss: float, settings: TrainingSettings
    ) -> bool:
        """Note how dev went, go on to the next epoch; return if this one is the best.

        Of epochs of the same accuracy the one with the least loss is the best. Only a
        better accuracy renews patience: after an epoch without one the batch size is
        halved, down to its bound.
        """
        is_better = accuracy > self.best_accuracy
        is_as_good = accuracy == self.best_accuracy
        is_best = is_better or (is_as_good and loss < (self.best_loss or 0.0))
        if is_best:
            self.best_accuracy, self.best_loss = accuracy, loss
            self.best_epoch = self.epoch
        if is_better:
            self.without_best = 0
        else:
            self.without_best += 1
            self.batch_size = max(settings.batch_size_low, self.batch_size // 2)
        self.epoch += 1
        self.position = self.right = self.seen = 0
        self.loss = self.seconds = 0.0
        self.finished = (
            self.without_best >= settings.patience or self.epoch >= settings.max_epochs
        )
        return is_best


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """η₀ · decay^⌊step / decay_steps⌋, never below the floor (nor above η₀)."""
    fallen = settings.learning_rate * settings.decay ** (step // settings.decay_steps)
    floor = min(settings.learning_rate_floor, settings.learning_rate)
    return max(floor, fallen)


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
