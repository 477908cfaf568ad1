"""A comparison as a table and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from perron.files import write_whole
from perron.tables import markdown_table, p_value_text, with_deviation

COLUMNS = ("aggregator", "seeds", "test", "dev", "p", "s/epoch", "time")


@dataclass(frozen=True)
class Line:
    """What several seeds of one aggregator gave; accuracies in per cent.

    Attributes:
        aggregator: as it was asked for.
        seeds: how many.
        test_mean: mean test accuracy.
        test_deviation: its standard deviation over the seeds; None for one seed.
        dev_mean: mean dev accuracy.
        p_value: of the difference to centrality; None where there is nothing to
            compare with.
        epoch_seconds: median time of an epoch's training.
        time_ratio: to self-attention's, if that is there.
    """

    aggregator: str
    seeds: int
    test_mean: float
    test_deviation: float | None
    dev_mean: float
    p_value: float | None
    epoch_seconds: float
    time_ratio: float | None

    def cells(self) -> list[str]:
        """Return what stands in each of `COLUMNS`."""
        return [
            self.aggregator,
            str(self.seeds),
            with_deviation(self.test_mean, self.test_deviation),
            f"{self.dev_mean:.1f}",
            p_value_text(self.p_value),
            f"{self.epoch_seconds:.1f}",
            "" if self.time_ratio is None else f"{self.time_ratio:.2f}",
        ]


def markdown(lines: Sequence[Line]) -> str:
    """Return a Markdown table, and what its columns mean."""
    table = markdown_table(COLUMNS, [line.cells() for line in lines])
    return (
        f"{table}\n\ntest: accuracy in per cent, mean and standard deviation over "
        "seeds; p: of the difference to centrality, paired by test example "
        "(permutation test); s/epoch: training alone; time: against self-attention.\n"
    )


def draw(lines: Sequence[Line], path: Path) -> None:
    """Draw the test accuracies with their deviations, as a PNG file."""
    from matplotlib.figure import Figure  # seconds

    figure = Figure(figsize=(7, 0.5 * len(lines) + 1.2), layout="constrained")
    axis = figure.subplots()
    names = [line.aggregator for line in lines][::-1]
    means = [line.test_mean for line in lines][::-1]
    deviations = [line.test_deviation or 0.0 for line in lines][::-1]
    axis.errorbar(means, names, xerr=deviations, fmt="o", capsize=4)
    axis.set(xlabel="test accuracy, per cent (bars: standard deviation over seeds)")
    axis.margins(y=0.15)
    axis.grid(axis="x", alpha=0.3)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_whole(path, picture.getvalue())
