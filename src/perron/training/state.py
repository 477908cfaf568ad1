"""The state of a training run: schedule, early stopping, weight averages, signals."""

import math
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from perron.errors import PerronError
from perron.training.metrics import METRICS
from perron.training.recipe import TrainingSettings


@dataclass
class TrainState:
    """All numbers of a run that change from step to step; a checkpoint holds them.

    Attributes:
        batch_size: Number of texts per batch.
        epoch: Epoch of the next batch, counted from 0.
        position: Number of the next batch in its epoch.
        step: Number of batches so far.
        best_epoch: The best epoch so far; without dev data, the last one.
        best_score: Its value of the metric that decides.
        best_loss: Its log-loss on dev data.
        epochs_since_best: Number of epochs without a better score.
        finished: Whether training is over.
        loss: Sum of the losses of the texts of this epoch so far.
        correct: Number of correct predictions (their weights, if there are weights).
        examples: Number of texts of this epoch so far.
        seconds: Time that was spent on them.
    """

    batch_size: int
    epoch: int = 0
    position: int = 0
    step: int = 0
    best_epoch: int | None = None
    best_score: float | None = None
    best_loss: float | None = None
    epochs_since_best: int = 0
    finished: bool = False
    loss: float = 0.0
    correct: float = 0.0
    examples: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return asdict(self)

    def count(self, loss: float, correct: float, examples: int, seconds: float) -> None:
        """Add a batch; ``loss`` is the sum over its texts."""
        self.loss += loss
        self.correct += correct
        self.examples += examples
        self.seconds += seconds
        self.step += 1
        self.position += 1

    def end_epoch(
        self, metrics: Mapping[str, float] | None, settings: TrainingSettings
    ) -> bool:
        """Begin the next epoch; return whether the one that ended is the best.

        If two epochs have the same score, the one with the smaller log-loss is better.
        Only a better score renews patience; after an epoch without one the batch size
        is halved, down to its bound. Without dev data every epoch is trained, and the
        last one counts as the best.

        Args:
            metrics: Metrics of the epoch on dev data; None without dev data.
            settings: Settings of the run.
        """
        if metrics is None:
            is_best, self.best_epoch = True, self.epoch
        else:
            is_best = self._compare(metrics, settings)
        self.epoch += 1
        self.position = self.examples = 0
        self.loss = self.correct = self.seconds = 0.0
        self.finished = (
            self.epochs_since_best >= settings.patience
            or self.epoch >= settings.max_epochs
        )
        return is_best

    def _compare(
        self, metrics: Mapping[str, float], settings: TrainingSettings
    ) -> bool:
        name = settings.metric_for_best_model
        score, loss = metrics[name], metrics["log_loss"]
        if self.best_epoch is None or self.best_score is None:
            is_better, is_as_good = True, False
        else:
            sign = 1 if METRICS[name].greater_is_better else -1
            is_better = sign * score > sign * self.best_score
            is_better |= math.isnan(self.best_score) and not math.isnan(score)
            is_as_good = score == self.best_score
        is_best = is_better or (
            is_as_good and self.best_loss is not None and loss < self.best_loss
        )
        if is_best:
            self.best_score, self.best_loss = score, loss
            self.best_epoch = self.epoch
        if is_better:
            self.epochs_since_best = 0
        else:
            self.epochs_since_best += 1
            self.batch_size = max(settings.min_batch_size, self.batch_size // 2)
        return is_best


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """η₀ · decay^⌊step / decay_steps⌋, never below the floor (nor above η₀)."""
    fallen = settings.learning_rate * settings.learning_rate_decay ** (
        step // settings.learning_rate_decay_steps
    )
    floor = min(settings.min_learning_rate, settings.learning_rate)
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


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class TrainingInterrupted(PerronError):
    """Training was asked to stop, and saved first."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; saved")
        self.number = number


class StopRequest:
    """Remembers the signal that came, if one did."""

    number: int = 0

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take a signal; a second one of the same kind is not held back."""
        self.number = number
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def defer_signals() -> Iterator[StopRequest]:
    """Hold back SIGINT and SIGTERM inside the block, and tell of them.

    Python gives signals to the main thread alone; any other has none to hold back.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # A signal that is ignored, as in the background of a script, stays so.
    heard = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, request.note) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that what it began is ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
