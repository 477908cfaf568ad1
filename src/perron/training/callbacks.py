"""Training callbacks, metrics.jsonl, experiment trackers and learning curves."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

from perron.errors import SettingsError
from perron.files import atomic_write
from perron.migrations import migrate, stamp
from perron.training.metrics import metric_title

if TYPE_CHECKING:
    from perron.training.loop import Loop

METRICS_FILE = "metrics.jsonl"


class Callback:
    """Called by `Loop` while it trains; every method may be left as it is.

    ``loop.state`` says where training is, and ``loop.model`` is the model. The hooks of
    several callbacks are called in their order.
    """

    def on_train_begin(self, loop: "Loop") -> None:
        """Called once, before the first step."""

    def on_epoch_begin(self, loop: "Loop", steps: int) -> None:
        """Called when an epoch of ``steps`` batches begins or resumes."""

    def on_step(self, loop: "Loop") -> None:
        """Called after each batch."""

    def on_evaluate(self, loop: "Loop", record: dict[str, Any]) -> None:
        """Called after an epoch, while the model has the weights that were evaluated.

        With ``training.ema_decay`` these are averages. ``record`` is as for
        `on_epoch_end`.
        """

    def on_epoch_end(self, loop: "Loop", record: dict[str, Any]) -> None:
        """Called after an epoch, with its line of metrics.jsonl."""

    def on_train_end(self, loop: "Loop") -> None:
        """Called once, also if training was stopped or failed."""


class MetricsFile(Callback):
    """metrics.jsonl: one line per epoch, on the disk before the checkpoint is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / METRICS_FILE
        self._file: BinaryIO | None = None

    def open(self, size: int = 0) -> None:
        """Continue after ``size`` bytes; lines beyond were not in a checkpoint."""
        self._file = self._path.open("ab")
        self._file.truncate(size)
        self._file.seek(size)

    @property
    def size(self) -> int:
        """The length of the file so far."""
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
        accelerator: Made with ``log_with``, the names of the trackers.
        config: Settings of the run, for trackers that show them.
    """

    def __init__(self, accelerator: Accelerator, config: Mapping[str, Any]) -> None:
        self._accelerator = accelerator
        self._config = dict(_flat(config))

    def on_train_begin(self, loop: "Loop") -> None:
        self._accelerator.init_trackers("perron", self._config)

    def on_epoch_end(self, loop: "Loop", record: dict[str, Any]) -> None:
        left_out = ("epoch", "step")
        values = {name: v for name, v in record.items() if name not in left_out}
        self._accelerator.log(values, step=record["step"])

    def on_train_end(self, loop: "Loop") -> None:
        # Not accelerate's end_training, which ends the process group as well.
        for tracker in self._accelerator.trackers:
            tracker.finish()


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested table with keys such as ``training.seed``."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            is_plain = isinstance(value, bool | int | float | str)
            yield f"{prefix}{key}", value if is_plain else str(value)


def part_metrics(record: Mapping[str, Any], part: str) -> dict[str, float]:
    """Return the metrics of train or dev in a line of metrics.jsonl, by name."""
    prefix = f"{part}_"
    return {
        key.removeprefix(prefix): value
        for key, value in record.items()
        if key.startswith(prefix)
    }


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl, one per epoch."""
    path = folder / METRICS_FILE
    if not path.exists():
        return []
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [migrate("metrics", record, path) for record in records]


def draw_curves(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw every metric over the epochs, on train and dev, as a PNG file."""
    from matplotlib.figure import Figure  # seconds

    epochs = [record["epoch"] + 1 for record in records]
    values = {
        part: [part_metrics(record, part) for record in records]
        for part in ("train", "dev")
    }
    names = list(dict.fromkeys(name for found in values["dev"] for name in found))
    figure = Figure(figsize=(4.5 * len(names), 3.5), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    best = [record["epoch"] + 1 for record in records if record["is_best"]]
    for axis, name in zip(axes, names, strict=True):
        for part, style in (("train", "--"), ("dev", "-")):
            curve = [found.get(name, math.nan) for found in values[part]]
            if not all(map(math.isnan, curve)):
                axis.plot(epochs, curve, style, marker="o", markersize=3, label=part)
        if best:
            axis.axvline(best[-1], color="0.7", linewidth=1, label="best epoch")
        axis.set(xlabel="epoch", ylabel=metric_title(name))
        axis.legend(frameon=False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    atomic_write(path, picture.getvalue())


def check_trackers(names: Sequence[str]) -> None:
    """Refuse experiment trackers that are unknown or not installed."""
    available = [str(name) for name in get_available_trackers()]
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS:
            known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
            raise SettingsError(f"log_with must be one of {known}, got {name!r}.")
        if name not in available:
            raise SettingsError(
                f"log_with: the package of {name} is not installed. "
                f"Install it with pip install {name}."
            )
