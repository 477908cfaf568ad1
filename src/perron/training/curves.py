"""A picture of how a run went."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from perron.files import write_whole


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
