"""Progress bars of training, and of reading word vectors."""

from typing import Any

from rich.progress import (
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from perron.cli.console import progress_bar, say
from perron.training.callbacks import Callback, part_metrics
from perron.training.loop import Loop
from perron.training.metrics import format_metrics


class TrainingBar(Callback):
    """A bar for each epoch, and a line when it is over."""

    def __init__(self, title: str = "") -> None:
        self._title = f"{title} " if title else ""
        self._bar = progress_bar(
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(compact=True),
        )
        self._task: TaskID | None = None

    def on_epoch_begin(self, loop: Loop, steps: int) -> None:
        self._bar.start()
        self._task = self._bar.add_task(
            f"{self._title}epoch {loop.state.epoch + 1} (at most "
            f"{loop.settings.max_epochs})",
            total=steps,
            completed=loop.state.position,
            figures="",
        )

    def on_step(self, loop: Loop) -> None:
        assert self._task is not None
        state = loop.state
        figures = (
            f"loss {state.loss / state.examples:.3f}  "
            f"acc {100 * state.correct / state.examples:.1f} %  "
            f"{state.examples / max(state.seconds, 1e-9):,.0f} texts/s"
        )
        self._bar.update(self._task, advance=1, figures=figures)

    def on_epoch_end(self, loop: Loop, record: dict[str, Any]) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        dev = format_metrics(part_metrics(record, "dev"))
        say(
            f"{self._title}epoch {record['epoch'] + 1:>2}  "
            f"loss {record['train_log_loss']:.4f}  dev {dev}"
            f"{' *' if record['is_best'] else '  '}  "
            f"batch {record['batch_size']}  {record['texts_per_second']:,.0f} texts/s"
        )

    def on_train_end(self, loop: Loop) -> None:
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
