"""Reports of studies: summaries, tables and plots."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perron.errors import DataError
from perron.experiments.records import RunRecord, csv_rows
from perron.experiments.significance import Comparison, compare_accuracies
from perron.experiments.study import BASELINES, Study
from perron.files import atomic_write, csv_bytes, format_p_value, markdown_table
from perron.training.metrics import METRICS, metric_title

ACCURACY = "accuracy"  # metric for grid points and significance tests
ONE_SEED = "†"  # marks p-values that say nothing about other seeds


class MeanStd(NamedTuple):
    """Mean and standard deviation over seeds; the latter is None for a single seed."""

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
        comparison: Difference in test accuracy from the reference and its p-value; None
            for the reference.
        graphs: Mean context dependence and second eigenvalue of the graphs, per level.
        parameters: Number of trained parameters.
        epoch_seconds: Median training time per epoch; None for a baseline.
        run_seconds: Training time per run: the time per epoch times the number of
            epochs, averaged over seeds.
        time_ratio: Training time per epoch relative to the speed reference; None
            without one, and for a baseline.
        chosen: Settings of the best grid point.
    """

    variant: str
    seeds: int
    dev: Mapping[str, MeanStd]
    test: Mapping[str, MeanStd]
    comparison: Comparison | None
    graphs: Sequence[tuple[float, float]]
    parameters: int
    epoch_seconds: float | None
    run_seconds: float
    time_ratio: float | None
    chosen: str


def summarize(study: Study, records: Sequence[RunRecord]) -> list[SummaryRow]:
    """Summarize the finished seeds of each variant whose grid is complete."""
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
    """Return the runs of the grid point with the best dev accuracy, by seed."""
    own = [record for record in records if record.variant == variant]
    tuning = sorted((r for r in own if r.seed == 0), key=lambda r: r.point)
    if len(tuning) < study.num_points(variant):
        return []
    best = max(tuning, key=lambda r: r.dev[ACCURACY])  # the first in case of a tie
    at_point = [record for record in own if record.point == best.point]
    return sorted(at_point, key=lambda record: record.seed)


def _row(
    study: Study,
    name: str,
    runs: Sequence[RunRecord],
    reference: Sequence[RunRecord] | None,
    base: float | None,
) -> SummaryRow:
    if len({run.data for run in runs}) > 1:
        raise DataError(
            f"the runs of {name} must all be trained on the same data, got several "
            "versions. Run the study again with another --out."
        )
    test = [run.test for run in runs if run.test is not None]
    first = runs[0]
    is_baseline = study.variants[name].baseline is not None
    seconds = None if is_baseline else _seconds(runs)
    levels = zip(*(_pairs(run.graphs) for run in runs), strict=True)
    return SummaryRow(
        variant=name,
        seeds=len(runs),
        dev=_aggregate([run.dev for run in runs]),
        test=_aggregate(test),
        comparison=compare_runs(study, runs, reference) if reference and test else None,
        graphs=[tuple(np.mean(level, 0).tolist()) for level in levels],
        parameters=first.parameters,
        epoch_seconds=seconds,
        run_seconds=float(np.mean([run.epochs * run.epoch_seconds for run in runs])),
        time_ratio=seconds / base if base and seconds is not None else None,
        chosen=", ".join(study.tuned_settings(name, first.point)),
    )


def _seconds(runs: Sequence[RunRecord]) -> float:
    return float(np.median([run.epoch_seconds for run in runs])) if runs else 0.0


def _aggregate(metrics: Sequence[Mapping[str, float]]) -> dict[str, MeanStd]:
    """Return the mean and standard deviation of each metric that all seeds have."""
    shared = [
        name for name in (metrics or [{}])[0] if all(name in own for own in metrics)
    ]
    return {name: _mean_std([own[name] for own in metrics]) for name in shared}


def _mean_std(values: Sequence[float]) -> MeanStd:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return MeanStd(float(np.mean(values)), deviation)


def _pairs(graphs: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    return [(g["context_dependence"], g["second_eigenvalue"]) for g in graphs]


def compare_runs(
    study: Study, runs: Sequence[RunRecord], reference: Sequence[RunRecord]
) -> Comparison:
    """Test the difference in test accuracy between two variants of a study."""
    if len({run.test_digest for run in (*runs, *reference)}) > 1:
        raise DataError(
            f"{runs[0].variant} and {reference[0].variant} were tested on different "
            "texts and cannot be compared. Run the study again with another --out."
        )
    first, second = (
        np.stack([run.correct_mask() for run in group]) for group in (runs, reference)
    )
    own, other = (
        study.variants[group[0].variant].baseline is not None
        for group in (runs, reference)
    )
    return compare_accuracies(first, second, deterministic=(own, other))


class TableColumn(NamedTuple):
    """A column of a study's table.

    Attributes:
        name: Heading.
        meaning: Explanation for the legend; may be empty.
        cells: Value of each row.
    """

    name: str
    meaning: str
    cells: Sequence[str]


def columns(study: Study, rows: Sequence[SummaryRow]) -> list[TableColumn]:
    """Return the nonempty columns of a study's table."""
    dev, test, *other_metrics = _metric_columns(rows)
    has_baselines = any(variant.baseline for variant in study.variants.values())
    candidates = [
        TableColumn(
            "variant", _explain_baselines(study), [row.variant for row in rows]
        ),
        TableColumn(
            "seeds",
            "",
            [
                "" if study.variants[row.variant].baseline else str(row.seeds)
                for row in rows
            ],
        ),
        dev,
        test,
        TableColumn(
            "p",
            explain_p_values(study, rows),
            [_format_comparison(row.comparison) for row in rows],
        ),
        TableColumn(
            "s/run",
            "training time in seconds, without reading and encoding data",
            [f"{row.run_seconds:.1f}" if has_baselines else "" for row in rows],
        ),
        *other_metrics,
        TableColumn(
            "context",
            "how much an edge into a word depends on its source word (0 is "
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
            "median training time per epoch in seconds, without evaluation",
            [
                "" if row.epoch_seconds is None else f"{row.epoch_seconds:.1f}"
                for row in rows
            ],
        ),
        TableColumn(
            "time",
            f"relative to {study.speed_reference}",
            [_ratio(row.time_ratio) for row in rows],
        ),
        TableColumn(
            "chosen",
            "grid point with the best dev accuracy, chosen with seed 0",
            [row.chosen for row in rows],
        ),
    ]
    return [column for column in candidates if any(column.cells)]


def _explain_baselines(study: Study) -> str:
    return ", ".join(
        f"{name} is logistic regression on {BASELINES[variant.baseline]}"
        for name, variant in study.variants.items()
        if variant.baseline is not None
    )


def explain_p_values(study: Study, rows: Sequence[SummaryRow]) -> str:
    """Return an explanation of the p-values in a table."""
    covered = {row.comparison.covers_seeds for row in rows if row.comparison}
    meaning = (
        f"p-value of the difference in test accuracy from {study.reference_variant}"
    )
    if True in covered:
        meaning += (
            " for other seeds and other texts (t-test with random seeds and texts)"
        )
    if False in covered:
        meaning += (
            f", {ONE_SEED} for other texts only (McNemar's exact test), because with "
            "one seed each, nothing is known about other seeds"
        )
    return meaning


def _format_comparison(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    text = format_p_value(comparison.p_value)
    return text if comparison.covers_seeds else f"{text} {ONE_SEED}"


def _metric_columns(rows: Sequence[SummaryRow]) -> list[TableColumn]:
    """Return the accuracies, then the other metrics on test data (or dev data)."""
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
                f"{metric_title(name)}{unit}, mean ± standard deviation over seeds",
                [format_mean_std(name, getattr(row, part).get(name)) for row in rows],
            )
        )
    return columns


def format_mean_std(metric: str, mean_std: MeanStd | None) -> str:
    """Format the mean and standard deviation of a metric; return "" for None."""
    if mean_std is None:
        return ""
    known = METRICS.get(metric)
    scale, digits = (100, 1) if known is not None and known.in_percent else (1, 3)
    return " ± ".join(
        f"{scale * value:.{digits}f}" for value in mean_std if value is not None
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


def write_report(
    study: Study,
    records: Sequence[RunRecord],
    folder: Path,
    name: str = "study",
    notes: Sequence[str] = (),
) -> list[SummaryRow]:
    """Write NAME.md, NAME.json, NAME.png and runs.csv; return the summary.

    Args:
        study: Study.
        records: Records of its runs.
        folder: Folder to write to.
        name: Name of the files.
        notes: Paragraphs to add below the table.
    """
    rows = summarize(study, records)
    table = [_json(row) for row in rows]
    text = markdown(study, rows) + "".join(f"\n{note}\n" for note in notes)
    atomic_write(folder / f"{name}.md", text.encode())
    atomic_write(folder / f"{name}.json", json.dumps(table, indent=2).encode())
    atomic_write(folder / f"{name}.png", plot_accuracies(rows))
    atomic_write(folder / "runs.csv", csv_bytes(csv_rows(records)))
    return rows


def _json(row: SummaryRow) -> dict[str, Any]:
    parts = {
        part: {key: value._asdict() for key, value in metrics.items()}
        for part, metrics in (("dev", row.dev), ("test", row.test))
    }
    p_value = None if row.comparison is None else row.comparison.p_value
    return {**asdict(row), **parts, "p_value": p_value}


def plot_accuracies(rows: Sequence[SummaryRow]) -> bytes:
    """Plot test accuracies (or dev accuracies) with error bars, as PNG."""
    from matplotlib.figure import Figure  # takes seconds to import

    part = "test" if all(row.test for row in rows) else "dev"
    accuracies = [getattr(row, part)[ACCURACY] for row in rows][::-1]
    figure = Figure(figsize=(7, 0.5 * len(rows) + 1.2), layout="constrained")
    axis = figure.subplots()
    axis.errorbar(
        [100 * accuracy.mean for accuracy in accuracies],
        [row.variant for row in rows][::-1],
        xerr=[100 * (accuracy.deviation or 0.0) for accuracy in accuracies],
        fmt="o",
        capsize=4,
    )
    axis.set(xlabel=f"{part} accuracy in % (error bars: standard deviation over seeds)")
    axis.margins(y=0.15)
    axis.grid(axis="x", alpha=0.3)
    content = BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
