"""How far a corpus is: a bar, or a line now and then."""

import time
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from perron.cli.console import is_watched, messages, say
from perron.integrations.corpora.parts import CorpusProgress, Outcome

_SECONDS = 60  # between two lines, where there is no bar


class EngineProgress:
    """Tells how far a run is: by a bar, or by a line now and then."""

    def __init__(self) -> None:
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(compact=True),
            console=messages,
            disable=not is_watched(),
            transient=True,
        )
        self._task = self._bar.add_task("starting workers", total=None, told="")
        self._begin = self._last = time.monotonic()
        self._rows = 0

    def __enter__(self) -> "EngineProgress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            say("stopped; the same command goes on with the rest")

    def __call__(self, progress: CorpusProgress) -> None:
        now = time.monotonic()
        self._rows = progress.rows
        told = (
            f"{progress.pieces:,} of {progress.all_pieces:,} pieces, "
            f"{progress.rows:,} rows now, {self._speed(now)}"
        )
        self._bar.update(
            self._task,
            description="computing",
            completed=progress.pieces,
            total=progress.all_pieces,
            told=told,
        )
        if not is_watched() and now - self._last > _SECONDS:
            self._last = now
            say(told)

    def _speed(self, now: float) -> str:
        return f"{self._rows / max(now - self._begin, 1e-9):,.0f} rows/s"

    def end(self, outcome: Outcome, out: Path) -> None:
        """Say what came of it."""
        there = outcome.pieces - outcome.computed
        speed = f", {self._speed(time.monotonic())}" if outcome.computed else ""
        say(
            f"{outcome.rows:,} rows in {outcome.pieces:,} "
            f"part{'s' * (outcome.pieces != 1)} in {out}"
            + (f" ({there:,} of them were there){speed}" if there else speed)
        )
        if outcome.left_out:
            rows = "row" if outcome.left_out == 1 else "rows"
            say(f"left out {outcome.left_out:,} bad {rows}")
