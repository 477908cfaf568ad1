"""Training callbacks: metrics file, TensorBoard and learning curves."""

import json
import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from perron.files import write_whole
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
        self._file.write(json.dumps(record).encode() + b"\n")
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
    return [json.loads(line) for line in path.read_text().splitlines()]


def draw_curves(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw loss and accuracy of each epoch, on train and dev, as a PNG file."""
    from matplotlib.figure import Figure  # seconds

    epochs = [record["epoch"] + 1 for record in records]
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, name in zip(axes, ("loss", "accuracy"), strict=True):
        for part, style in (("train", "--"), ("dev", "-")):
            values = [record[f"{part}_{name}"] for record in records]
            axis.plot(epochs, values, style, marker="o", markersize=3, label=part)
        best = [record["epoch"] + 1 for record in records if record["is_best"]]
        if best:
            axis.axvline(best[-1], color="0.7", linewidth=1, label="best epoch")
        axis.set(xlabel="epoch", ylabel=name)
        axis.legend(frameon=False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_whole(path, picture.getvalue())
