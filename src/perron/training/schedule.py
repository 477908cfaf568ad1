"""Where a run stands: learning rate, batch size, best epoch, and when to stop."""

from dataclasses import asdict, dataclass
from typing import Any

from perron.training.settings import TrainingSettings


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
