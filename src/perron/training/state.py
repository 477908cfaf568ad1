"""Training state: schedule, early stopping, weight averaging and signals."""

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
    """The mutable state of a run, stored in checkpoints.

    Attributes:
        batch_size: Number of texts per batch.
        epoch: Epoch of the next batch, counted from 0.
        position: Index of the next batch in its epoch.
        step: Number of batches so far.
        best_epoch: Best epoch so far; the last one without dev data.
        best_score: Value of the selection metric in the best epoch.
        best_loss: Log-loss on dev data in the best epoch.
        epochs_since_best: Number of epochs since the score last improved.
        finished: Whether training is complete.
        loss: Summed loss of the texts in this epoch so far.
        correct: Number (or total weight) of correct predictions in this epoch so far.
        examples: Number of texts in this epoch so far.
        seconds: Training time of this epoch so far.
        num_threads: Number of torch threads, on which rounding depends. None in
            checkpoints of earlier versions.
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
    num_threads: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return asdict(self)

    def add_batch(
        self, loss: float, correct: float, examples: int, seconds: float
    ) -> None:
        """Record a batch; ``loss`` is the sum over its texts."""
        self.loss += loss
        self.correct += correct
        self.examples += examples
        self.seconds += seconds
        self.step += 1
        self.position += 1

    def end_epoch(
        self, metrics: Mapping[str, float] | None, settings: TrainingSettings
    ) -> bool:
        """Advance to the next epoch; return whether the last one is the best so far.

        Ties in the score are broken by the smaller log-loss. Only a better score resets
        patience. After an epoch without one, the batch size is halved, down to
        ``min_batch_size``. Without dev data, training runs for all epochs, and the last
        one counts as the best.

        Args:
            metrics: Metrics of the epoch on dev data; None without dev data.
            settings: Settings of the run.
        """
        if metrics is None:
            is_best, self.best_epoch = True, self.epoch
        else:
            is_best = self._update_best(metrics, settings)
        self.epoch += 1
        self.position = self.examples = 0
        self.loss = self.correct = self.seconds = 0.0
        self.finished = (
            self.epochs_since_best >= settings.patience
            or self.epoch >= settings.max_epochs
        )
        return is_best

    def _update_best(
        self, metrics: Mapping[str, float], settings: TrainingSettings
    ) -> bool:
        name = settings.metric_for_best_model
        score, loss = metrics[name], metrics["log_loss"]
        if self.best_epoch is None or self.best_score is None:
            is_better, is_tie = True, False
        else:
            sign = 1 if METRICS[name].greater_is_better else -1
            is_better = sign * score > sign * self.best_score
            is_better |= math.isnan(self.best_score) and not math.isnan(score)
            is_tie = score == self.best_score
        is_best = is_better or (
            is_tie and self.best_loss is not None and loss < self.best_loss
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


def learning_rate(
    state: TrainState, num_batches: int, settings: TrainingSettings
) -> float:
    """Return the learning rate η of the next step.

    With the fraction p of the planned epochs (``max_epochs``) that is done, the warm-up
    ratio w and r = (p - w) / (1 - w):

        staircase   η = η₀ · decay^⌊step / decay_steps⌋
        linear      η = η₀ · (1 - r)
        cosine      η = η₀ · (1 + cos πr) / 2
        constant    η = η₀

    but at least ``min_learning_rate`` (or η₀, if that is smaller). While p < w, η is
    η₀ · p / w, or the rate of the staircase if that is smaller. The number of batches
    per epoch, which grows as the batch size shrinks, does not change the rate at a
    given p.

    Args:
        state: Progress of training.
        num_batches: Number of batches in this epoch.
        settings: Schedule.
    """
    progress = (state.epoch + state.position / num_batches) / settings.max_epochs
    warmup = settings.warmup_ratio
    factor = 1.0
    remaining = (1 - progress) / (1 - warmup)
    if settings.lr_scheduler_type == "staircase":
        factor = settings.learning_rate_decay ** (
            state.step // settings.learning_rate_decay_steps
        )
    elif settings.lr_scheduler_type == "linear":
        factor = remaining
    elif settings.lr_scheduler_type == "cosine":
        factor = (1 - math.cos(math.pi * min(1.0, remaining))) / 2
    if progress < warmup:
        factor = min(factor, progress / warmup)
    smallest = min(settings.min_learning_rate, settings.learning_rate)
    return max(settings.learning_rate * factor, smallest)


POLYNOMIAL_DECAY_ETA = 8  # early on, the weight of step s in the average grows as s^η


class WeightAverage:
    """Exponential moving average (EMA) w̄ of the trained weights w.

        w̄_t = (1 - s_t) w̄_{t-1} + s_t w_t,   s_t = max(1 - x, 9 / (t + 8))

    for the steps t = 1, 2, … In the long run, the newest weights have the weight 1 - x.
    Until about step 9 / (1 - x), this is polynomial-decay averaging (Shamir and Zhang,
    2013, η = 8), roughly a mean over the last tenth of all steps. Because s_1 = 1, the
    random initial weights have no influence on w̄, and the poor weights of the first
    steps are soon forgotten. (With Adam's bias correction, w̄ would be the plain mean of
    all steps until about step 1 / (1 - x).)

    Frozen weights and buffers are not averaged. Processes that train together have the
    same weights, and therefore the same average.

    Args:
        model: Model to average, already on its device.
        decay: Decay x, the fraction of the average that is kept at each step.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
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
        """Update the average with the weights after a step, counted from 1."""
        eta = POLYNOMIAL_DECAY_ETA
        newest = max(1 - self.decay, (eta + 1) / (step + eta))
        averages, weights = self.tensors.values(), self._weights.values()
        torch._foreach_lerp_(tuple(averages), tuple(weights), newest)

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Swap the average into the model; restore the trained weights on exit."""
        trained = {name: w.detach().clone() for name, w in self._weights.items()}
        self._set_weights(self.tensors)
        try:
            yield
        finally:
            self._set_weights(trained)

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the average from a checkpoint."""
        for name, average in self.tensors.items():
            average.copy_(tensors[name])

    @torch.no_grad()
    def _set_weights(self, values: Mapping[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(values[name])


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class TrainingInterrupted(PerronError):
    """Raised when a signal stopped training, after a checkpoint was saved.

    Attributes:
        signal_number: Number of the signal.
    """

    def __init__(self, signal_number: int) -> None:
        name = signal.Signals(signal_number).name
        super().__init__(f"stopped by {name}; checkpoint saved")
        self.signal_number = signal_number


class StopRequest:
    """A request to stop training.

    Attributes:
        signal_number: Number of the signal that was received, or 0.
    """

    signal_number: int = 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record a signal; a second one of the same kind takes effect at once."""
        self.signal_number = number
        default = signal.SIG_DFL if number != signal.SIGINT else _raise_interrupt
        signal.signal(number, default)


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def defer_signals() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM inside the block instead of acting on them.

    Has no effect outside the main thread, because Python delivers signals there only.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # Keep ignoring signals that are ignored already, as in a background job.
    handled = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, request.handle) for number in handled}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM inside the block, so that it can clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
