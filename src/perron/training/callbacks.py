"""Training callbacks, metrics.jsonl, experiment trackers and plots."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

from perron.errors import SettingsError
from perron.files import atomic_write
from perron.migrations import migrate, stamp
from perron.training.metrics import metric_title

if TYPE_CHECKING:
    from perron.training.loop import Loop

METRICS_FILE = "metrics.jsonl"
CURVES, CONFUSION = "curves.png", "confusion.png"


class Callback:
    """Base class of training callbacks; every hook does nothing by default.

    ``loop.state`` holds the progress of training, ``loop.model`` the model. Callbacks
    are called in the order in which they were passed to `Loop`.
    """

    def on_train_begin(self, loop: "Loop") -> None:
        """Called once, before the first step."""

    def on_epoch_begin(self, loop: "Loop", steps: int) -> None:
        """Called when an epoch of ``steps`` batches starts or resumes."""

    def on_step(self, loop: "Loop") -> None:
        """Called after each batch."""

    def on_evaluate(self, loop: "Loop", record: dict[str, Any]) -> None:
        """Called after an epoch, while the model holds the evaluated weights.

        With ``training.ema_decay``, these are the averaged weights. ``record`` is the
        same as in `on_epoch_end`.
        """

    def on_epoch_end(self, loop: "Loop", record: dict[str, Any]) -> None:
        """Called after an epoch, with its entry in metrics.jsonl."""

    def on_train_end(self, loop: "Loop") -> None:
        """Called once at the end, even if training was interrupted or failed."""


class MetricsFile(Callback):
    """Writes metrics.jsonl, one line per epoch, to disk before each checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / METRICS_FILE
        self._file: BinaryIO | None = None

    def open(self, size: int = 0) -> None:
        """Append after ``size`` bytes, dropping lines that no checkpoint includes."""
        self._file = self._path.open("ab")
        self._file.truncate(size)
        self._file.seek(size)

    @property
    def size(self) -> int:
        """Current size of the file in bytes."""
        return 0 if self._file is None else self._file.tell()

    def on_train_begin(self, loop: "Loop") -> None:
        if self._file is None:
            self.open()

    def on_epoch_end(self, loop: "Loop", record: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(stamp("metrics", record)).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def on_train_end(self, loop: "Loop") -> None:
        if self._file is not None:
            self._file.close()


class Trackers(Callback):
    """Logs each epoch to experiment trackers such as TensorBoard.

    Args:
        accelerator: Accelerator created with ``log_with``.
        config: Settings of the run, for trackers that display them.
    """

    def __init__(self, accelerator: Accelerator, config: Mapping[str, Any]) -> None:
        self._accelerator = accelerator
        self._config = dict(_flatten(config))

    def on_train_begin(self, loop: "Loop") -> None:
        self._accelerator.init_trackers("perron", self._config)

    def on_epoch_end(self, loop: "Loop", record: dict[str, Any]) -> None:
        excluded = ("epoch", "step")
        values = {name: v for name, v in record.items() if name not in excluded}
        self._accelerator.log(values, step=record["step"])

    def on_train_end(self, loop: "Loop") -> None:
        # Not accelerate's end_training, which also destroys the process group.
        for tracker in self._accelerator.trackers:
            tracker.finish()


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested table with keys such as ``training.seed``."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            is_scalar = isinstance(value, bool | int | float | str)
            yield f"{prefix}{key}", value if is_scalar else str(value)


def part_metrics(record: Mapping[str, Any], part: str) -> dict[str, float]:
    """Return the train or dev metrics of an entry in metrics.jsonl, by name."""
    prefix = f"{part}_"
    return {
        key.removeprefix(prefix): value
        for key, value in record.items()
        if key.startswith(prefix)
    }


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read metrics.jsonl; return one entry per epoch."""
    path = folder / METRICS_FILE
    if not path.exists():
        return []
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [migrate("metrics", record, path) for record in records]


def draw_plots(
    folder: Path,
    records: Sequence[dict[str, Any]],
    labels: Sequence[str],
    confusion: Sequence[Sequence[int]],
) -> None:
    """Draw the plots of a finished run: learning curves and confusion matrix.

    Args:
        folder: Folder of the run.
        records: Entries of metrics.jsonl.
        labels: Names of the classes.
        confusion: Number of texts per true class (row) and predicted class.
    """
    draw_curves(records, folder / CURVES)
    draw_confusion(labels, confusion, folder / CONFUSION)


def draw_curves(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot the train and dev value of every metric per epoch, as a PNG file."""
    from matplotlib.figure import Figure  # takes seconds to import

    epochs = [record["epoch"] + 1 for record in records]
    values = {
        part: [part_metrics(record, part) for record in records]
        for part in ("train", "dev")
    }
    names = list(dict.fromkeys(name for metrics in values["dev"] for name in metrics))
    figure = Figure(figsize=(4.5 * len(names), 3.5), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    best = [record["epoch"] + 1 for record in records if record["is_best"]]
    for axis, name in zip(axes, names, strict=True):
        for part, style in (("train", "--"), ("dev", "-")):
            curve = [metrics.get(name, math.nan) for metrics in values[part]]
            if not all(map(math.isnan, curve)):
                axis.plot(epochs, curve, style, marker="o", markersize=3, label=part)
        if best:
            axis.axvline(best[-1], color="0.7", linewidth=1, label="best epoch")
        axis.set(xlabel="epoch", ylabel=metric_title(name))
        axis.legend(frameon=False)
    _save_figure(figure, path)


_MAX_CELLS = 30**2  # numbers in smaller cells cannot be read


def draw_confusion(
    labels: Sequence[str], confusion: Sequence[Sequence[int]], path: Path
) -> None:
    """Draw a confusion matrix: numbers of texts, colored by fraction of the row.

    Args:
        labels: Names of the classes.
        confusion: Number of texts per true class (row) and predicted class.
        path: PNG, SVG or PDF file.
    """
    from matplotlib.figure import Figure

    counts = np.asarray(confusion)
    fractions = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = min(30.0, 2.5 + 0.5 * len(labels))
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, shrink=0.8, label="fraction of the true class")
    names = [shorten(label, 24, placeholder="…") for label in labels]
    axis.set_xticks(range(len(labels)), names, rotation=45, ha="right")
    axis.set_yticks(range(len(labels)), names)
    axis.set(xlabel="predicted class", ylabel="true class")
    if counts.size <= _MAX_CELLS:
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if fractions[row, column] > 0.5 else "black"
            text = str(count)
            axis.text(column, row, text, color=color, ha="center", va="center")
    _save_figure(figure, path)


def _save_figure(figure: Any, path: Path) -> None:
    image = BytesIO()
    figure.savefig(image, format=path.suffix[1:].lower(), dpi=120)
    atomic_write(path, image.getvalue())


def check_trackers(names: Sequence[str]) -> None:
    """Raise an error for experiment trackers that are unknown or not installed."""
    available = [str(name) for name in get_available_trackers()]
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS:
            known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
            raise SettingsError(f"log_with must be one of {known}, got {name!r}.")
        if name not in available:
            raise SettingsError(
                f"log_with={name!r} requires the package {name}, which is not "
                f"installed. Install it with: pip install {name}"
            )
