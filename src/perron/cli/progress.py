"""Progress bars of training, and of reading word vectors."""

from typing import Any

from rich.progress import (
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from perron.cli.console import progress_bar, say
from perron.training.callbacks import Watcher
from perron.training.metrics import format_metrics
from perron.training.recipe import TrainingSettings
from perron.training.state import Standing


class TrainingBar(Watcher):
    """A bar for each epoch, and a line when it is over."""

    def __init__(self, settings: TrainingSettings, title: str = "") -> None:
        self._settings = settings
        self._title = f"{title} " if title else ""
        self._bar = progress_bar(
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(compact=True),
        )
        self._task: TaskID | None = None

    def begin_epoch(self, standing: Standing, steps: int, texts: int) -> None:
        self._bar.start()
        self._task = self._bar.add_task(
            f"{self._title}epoch {standing.epoch + 1} (at most "
            f"{self._settings.max_epochs})",
            total=steps,
            completed=standing.position,
            told="",
        )

    def step(self, standing: Standing, texts: int) -> None:
        assert self._task is not None
        told = (
            f"loss {standing.loss / standing.seen:.3f}  "
            f"acc {100 * standing.right / standing.seen:.1f} %  "
            f"{standing.seen / max(standing.seconds, 1e-9):,.0f} texts/s"
        )
        self._bar.update(self._task, advance=1, told=told)

    def end_epoch(self, record: dict[str, Any]) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        dev = {
            key.removeprefix("dev_"): value
            for key, value in record.items()
            if key.startswith("dev_")
        }
        say(
            f"{self._title}epoch {record['epoch'] + 1:>2}  "
            f"loss {record['train_log_loss']:.4f}  dev {format_metrics(dev)}"
            f"{' *' if record['is_best'] else '  '}  "
            f"batch {record['batch_size']}  {record['texts_per_second']:,.0f} texts/s"
        )

    def end(self) -> None:
        self._bar.stop()


class ReadingBar:
    """A bar in bytes for each source of word vectors."""

    def __init__(self) -> None:
        self._bar = progress_bar(
            TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn(compact=True)
        )
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, source: str, done: int, total: int) -> None:
        self._bar.start()
        if source not in self._tasks:
            self._tasks[source] = self._bar.add_task(f"reading {source}", total=total)
        self._bar.update(self._tasks[source], completed=done)
        if done >= total:
            self._bar.stop()

    def end(self) -> None:
        """Give the terminal back, also when a source could not be read to its end."""
        self._bar.stop()
