"""Training callbacks: metrics file, TensorBoard and learning curves."""

import json
import math
import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from perron.files import write_whole
from perron.migrations import migrate, stamp
from perron.training.metrics import metric_title
from perron.training.state import Standing

METRICS = "metrics.jsonl"


class Watcher:
    """Is told what happens; each method may be left as it is."""

    def begin_epoch(self, standing: Standing, steps: int, texts: int) -> None:
        """An epoch of so many batches and texts begins, or goes on after a resume."""

    def step(self, standing: Standing, texts: int) -> None:
        """A batch of so many texts was learnt from."""

    def end_epoch(self, record: dict[str, Any]) -> None:
        """An epoch is over; the record is the line of metrics.jsonl."""

    def end(self) -> None:
        """Training is over, for whatever reason."""


class MetricsFile(Watcher):
    """metrics.jsonl: a line for each epoch, on the disk before the checkpoint is."""

    def __init__(self, folder: Path, size: int = 0) -> None:
        """Go on after ``size`` bytes; what is beyond was not in a checkpoint."""
        self._file = (folder / METRICS).open("ab")
        self._file.truncate(size)
        self._file.seek(size)

    @property
    def size(self) -> int:
        """The length of the file so far."""
        return self._file.tell()

    def end_epoch(self, record: dict[str, Any]) -> None:
        line = json.dumps(stamp("metrics", record))
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def end(self) -> None:
        self._file.close()


class TensorBoard(Watcher):
    """Curves for TensorBoard, in the folder ``tensorboard`` of the run."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # seconds

        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def end_epoch(self, record: dict[str, Any]) -> None:
        for name, value in record.items():
            if isinstance(value, int | float) and name not in ("epoch", "step"):
                self._writer.add_scalar(name, value, record["step"])

    def end(self) -> None:
        self._writer.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a run, one for each epoch."""
    path = folder / METRICS
    if not path.exists():
        return []
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [migrate("metrics", record, path) for record in records]


def draw_curves(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw every metric over the epochs, on train and dev, as a PNG file."""
    from matplotlib.figure import Figure  # seconds

    epochs = [record["epoch"] + 1 for record in records]
    keys = dict.fromkeys(key for record in records for key in record)
    names = [key.removeprefix("dev_") for key in keys if key.startswith("dev_")]
    figure = Figure(figsize=(4.5 * len(names), 3.5), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        for part, style in (("train", "--"), ("dev", "-")):
            if f"{part}_{name}" in keys:
                values = [record.get(f"{part}_{name}", math.nan) for record in records]
                axis.plot(epochs, values, style, marker="o", markersize=3, label=part)
        best = [record["epoch"] + 1 for record in records if record["is_best"]]
        if best:
            axis.axvline(best[-1], color="0.7", linewidth=1, label="best epoch")
        axis.set(xlabel="epoch", ylabel=metric_title(name))
        axis.legend(frameon=False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_whole(path, picture.getvalue())
