"""Summaries of studies: significance, tables, a picture."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from perron.errors import DataError
from perron.experiments.records import RunRecord
from perron.experiments.study import Study
from perron.files import atomic_write, csv_bytes, format_p_value, markdown_table
from perron.training.metrics import METRICS, metric_title

ACCURACY = "accuracy"  # chooses grid points, and has a significance test


def paired_p_value(
    first: Bool[np.ndarray, "seeds n"], second: Bool[np.ndarray, "seeds n"]
) -> float:
    r"""Return the p-value of the difference in accuracy between two models.

    An exact two-sided permutation test, paired by test example: the models exchange
    their answers to an example, of all seeds, with probability one half. The p-value
    says whether the difference would hold for other texts. Whether it would hold for
    other seeds shows in the standard deviation.

    An exchange flips the sign of d_i, the number of seeds that are correct in the first
    model minus that in the second. The sum of the d_i with random signs has the
    characteristic function Π_i cos(d_i ω), and all 2ⁿ exchanges are counted by its
    Fourier transform. (`scipy.stats.permutation_test` draws some of them; for 10,000
    examples it takes ten seconds.)

    Args:
        first: Whether each answer is correct, for each seed.
        second: The same for the other model, with as many seeds.
    """
    difference = first.sum(0) - second.sum(0)
    sizes, counts = np.unique(np.abs(difference), return_counts=True)
    largest = int(sizes @ counts)
    size = 2 * largest + 1  # the sums from -largest to largest
    frequencies = np.arange(largest + 1) * 2 * np.pi / size
    spectrum = np.prod(
        [np.cos(d * frequencies) ** c for d, c in zip(sizes, counts, strict=True)], 0
    )
    chances = np.fft.irfft(spectrum, size)[: largest + 1]  # of the sums 0 to largest
    observed = abs(int(difference.sum()))
    tail = chances[observed:].sum() * 2 - (chances[0] if observed == 0 else 0.0)
    smallest = 2.0 ** (1 - np.count_nonzero(difference))  # two of all exchanges
    return float(np.clip(tail, min(smallest, 1.0), 1.0))


class MeanStd(NamedTuple):
    """Mean and standard deviation over seeds; no deviation for one seed."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class SummaryRow:
    """Results of one variant over its seeds.

    Attributes:
        variant: Name of the variant.
        seeds: Number of runs.
        dev: Metrics on dev data, by name.
        test: Metrics on test data, by name; empty without test data.
        p_value: P-value of the difference in test accuracy to the reference; None for
            the reference.
        graphs: Mean context dependence and second eigenvalue of each level's graphs.
        parameters: Number of trained parameters.
        epoch_seconds: Seconds of training per epoch, the median.
        time_ratio: That time relative to the speed reference; None without one.
        chosen: Settings of the chosen grid point.
    """

    variant: str
    seeds: int
    dev: Mapping[str, MeanStd]
    test: Mapping[str, MeanStd]
    p_value: float | None
    graphs: Sequence[tuple[float, float]]
    parameters: int
    epoch_seconds: float
    time_ratio: float | None
    chosen: str


def summarize(study: Study, records: Sequence[RunRecord]) -> list[SummaryRow]:
    """Return a row for each variant whose grid is done, of the seeds that are."""
    runs = {name: chosen_runs(study, name, records) for name in study.variants}
    reference = runs[study.reference_variant]
    base = _seconds(runs[study.speed_reference]) if study.speed_reference else None
    return [
        _row(
            study,
            name,
            own,
            None if name == study.reference_variant else reference,
            base,
        )
        for name, own in runs.items()
        if own
    ]


def chosen_runs(
    study: Study, variant: str, records: Sequence[RunRecord]
) -> list[RunRecord]:
    """Return the runs of the point that is best on dev, in the order of the seeds."""
    own = [record for record in records if record.variant == variant]
    tuning = sorted((r for r in own if r.seed == 0), key=lambda r: r.point)
    if len(tuning) < len(study.grid):
        return []
    best = max(tuning, key=lambda record: record.dev[ACCURACY])  # of equals the first
    of_point = [record for record in own if record.point == best.point]
    return sorted(of_point, key=lambda record: record.seed)


def _row(
    study: Study,
    name: str,
    runs: Sequence[RunRecord],
    reference: Sequence[RunRecord] | None,
    base: float | None,
) -> SummaryRow:
    if len({run.data for run in runs}) > 1:
        raise DataError(
            f"the runs of {name} must be trained on the same data to have a mean, got "
            "several. Run the study again with another --out."
        )
    test = [run.test for run in runs if run.test is not None]
    first, seconds = runs[0], _seconds(runs)
    levels = zip(*(_pairs(run.graphs) for run in runs), strict=True)
    return SummaryRow(
        variant=name,
        seeds=len(runs),
        dev=_over_seeds([run.dev for run in runs]),
        test=_over_seeds(test),
        p_value=_p_value(runs, reference) if reference and test else None,
        graphs=[tuple(np.mean(level, 0).tolist()) for level in levels],
        parameters=first.parameters,
        epoch_seconds=seconds,
        time_ratio=None if not base else seconds / base,
        chosen=", ".join(study.tuned_settings(name, first.point)),
    )


def _seconds(runs: Sequence[RunRecord]) -> float:
    return float(np.median([run.epoch_seconds for run in runs])) if runs else 0.0


def _over_seeds(metrics: Sequence[Mapping[str, float]]) -> dict[str, MeanStd]:
    """Return each metric that all seeds have."""
    shared = [
        name for name in (metrics or [{}])[0] if all(name in own for own in metrics)
    ]
    return {name: _spread([own[name] for own in metrics]) for name in shared}


def _spread(values: Sequence[float]) -> MeanStd:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return MeanStd(float(np.mean(values)), deviation)


def _pairs(graphs: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    return [(g["context_dependence"], g["second_eigenvalue"]) for g in graphs]


def _p_value(runs: Sequence[RunRecord], reference: Sequence[RunRecord]) -> float | None:
    """Return p over the seeds that both have; None if they share none."""
    seeds = {run.seed for run in runs} & {run.seed for run in reference}
    own, other = ([r for r in of if r.seed in seeds] for of in (runs, reference))
    if not seeds:
        return None
    if len({run.test_digest for run in (*own, *other)}) > 1:
        raise DataError(
            f"{runs[0].variant} and {reference[0].variant} were tested on different "
            "texts and cannot be compared"
        )
    first, second = (
        np.stack([run.correct_mask() for run in of]) for of in (own, other)
    )
    return paired_p_value(first, second)


class TableColumn(NamedTuple):
    """A column of the table of a study."""

    name: str
    meaning: str
    cells: Sequence[str]


def columns(study: Study, rows: Sequence[SummaryRow]) -> list[TableColumn]:
    """Return the columns of a study's table that are not empty."""
    candidates = [
        TableColumn("variant", "", [row.variant for row in rows]),
        TableColumn("seeds", "", [str(row.seeds) for row in rows]),
        *_metric_columns(rows),
        TableColumn(
            "p",
            f"p-value of the difference in test accuracy to {study.reference_variant}, "
            "paired by test example (exact permutation test, the seeds that both have)",
            [format_p_value(row.p_value) for row in rows],
        ),
        TableColumn(
            "context",
            "how much an edge into a word depends on the word it comes from (0 is "
            "self-attention)",
            [", ".join(f"{context:.2f}" for context, _ in row.graphs) for row in rows],
        ),
        TableColumn(
            "λ₂",
            "second largest absolute eigenvalue of the graph (0 is self-attention)",
            [", ".join(f"{value:.2f}" for _, value in row.graphs) for row in rows],
        ),
        TableColumn("parameters", "", [f"{row.parameters:,}" for row in rows]),
        TableColumn(
            "s/epoch",
            "seconds of training per epoch, without evaluation",
            [f"{row.epoch_seconds:.1f}" for row in rows],
        ),
        TableColumn(
            "time",
            f"relative to {study.speed_reference}",
            [_ratio(row.time_ratio) for row in rows],
        ),
        TableColumn(
            "chosen",
            "grid point, chosen by dev accuracy with seed 0",
            [row.chosen for row in rows],
        ),
    ]
    return [column for column in candidates if any(column.cells)]


def _metric_columns(rows: Sequence[SummaryRow]) -> list[TableColumn]:
    """Return accuracies, then the other metrics on test data, or on dev without."""
    part = "test" if any(row.test for row in rows) else "dev"
    others = dict.fromkeys(name for row in rows for name in getattr(row, part))
    others.pop(ACCURACY, None)
    shown = [("dev", ACCURACY), ("test", ACCURACY), *((part, name) for name in others)]
    columns = []
    for part, name in shown:
        metric = METRICS.get(name)
        unit = " in percent" if metric is not None and metric.in_percent else ""
        columns.append(
            TableColumn(
                part if name == ACCURACY else f"{part} {metric_title(name)}",
                f"{metric_title(name)}{unit}, mean ± standard deviation over the seeds",
                [format_mean_std(name, getattr(row, part).get(name)) for row in rows],
            )
        )
    return columns


def format_mean_std(metric: str, spread: MeanStd | None) -> str:
    """Return mean and deviation of a metric as text; nothing for None."""
    if spread is None:
        return ""
    known = METRICS.get(metric)
    scale, digits = (100, 1) if known is not None and known.in_percent else (1, 3)
    return " ± ".join(
        f"{scale * value:.{digits}f}" for value in spread if value is not None
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def markdown(study: Study, rows: Sequence[SummaryRow]) -> str:
    """Return a Markdown table and a legend of its columns."""
    shown = columns(study, rows)
    cells = list(zip(*(column.cells for column in shown), strict=True))
    table = markdown_table([column.name for column in shown], cells)
    meanings: dict[str, list[str]] = {}
    for column in shown:
        if column.meaning:
            meanings.setdefault(column.meaning, []).append(column.name)
    legend = "; ".join(
        f"{' and '.join(names)}: {meaning}" for meaning, names in meanings.items()
    )
    return f"{table}\n\n{legend}.\n"


def csv_rows(records: Sequence[RunRecord]) -> list[list[str]]:
    """Return a row for each run, with everything needed to get its results again."""
    run = ("variant", "point", "seed")
    results = ("epochs", "best_epoch", "parameters", "epoch_seconds")
    origin = ("commit", "data", "command")
    graph = ("context_dependence", "second_eigenvalue")
    names = dict.fromkeys(name for record in records for name in record.dev)
    parts = [(part, name) for part in ("dev", "test") for name in names]
    metrics = [f"{part}_{name}" for part, name in parts]
    rows = [[*run, *metrics, *results, *origin, *graph]]
    for record in records:
        values = [(getattr(record, part) or {}).get(name, "") for part, name in parts]
        levels = [[f"{level[name]:.4f}" for level in record.graphs] for name in graph]
        rows.append(
            [
                *(str(getattr(record, name)) for name in run),
                *map(str, values),
                *(str(getattr(record, name)) for name in (*results, *origin)),
                *(" ".join(each) for each in levels),
            ]
        )
    return rows


def write_report(
    study: Study, records: Sequence[RunRecord], folder: Path, name: str = "study"
) -> list[SummaryRow]:
    """Write NAME.md, NAME.json, NAME.png and runs.csv; return the rows of the table."""
    rows = summarize(study, records)
    table = [_json(row) for row in rows]
    atomic_write(folder / f"{name}.md", markdown(study, rows).encode())
    atomic_write(folder / f"{name}.json", json.dumps(table, indent=2).encode())
    atomic_write(folder / f"{name}.png", picture(rows))
    atomic_write(folder / "runs.csv", csv_bytes(csv_rows(records)))
    return rows


def _json(row: SummaryRow) -> dict[str, Any]:
    parts = {
        part: {key: spread._asdict() for key, spread in metrics.items()}
        for part, metrics in (("dev", row.dev), ("test", row.test))
    }
    return {**asdict(row), **parts}


def picture(rows: Sequence[SummaryRow]) -> bytes:
    """Draw the accuracies with their deviations, on dev without test data; as PNG."""
    from matplotlib.figure import Figure  # seconds

    part = "test" if all(row.test for row in rows) else "dev"
    spreads = [getattr(row, part)[ACCURACY] for row in rows][::-1]
    figure = Figure(figsize=(7, 0.5 * len(rows) + 1.2), layout="constrained")
    axis = figure.subplots()
    axis.errorbar(
        [100 * spread.mean for spread in spreads],
        [row.variant for row in rows][::-1],
        xerr=[100 * (spread.deviation or 0.0) for spread in spreads],
        fmt="o",
        capsize=4,
    )
    axis.set(xlabel=f"{part} accuracy in percent (bars: standard deviation over seeds)")
    axis.margins(y=0.15)
    axis.grid(axis="x", alpha=0.3)
    content = BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
