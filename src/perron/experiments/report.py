"""Summaries of studies: significance tests, Markdown and CSV tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool

from perron.errors import DataError
from perron.experiments.records import Record
from perron.experiments.study import Study
from perron.tables import markdown_table, p_value_text, with_deviation


def paired_p_value(
    first: Bool[np.ndarray, "seeds n"],
    second: Bool[np.ndarray, "seeds n"],
    draws: int = 9999,
    seed: int = 0,
) -> float:
    """Return how often a difference in accuracy as large as this comes by chance.

    A permutation test, two-sided, paired by test example: of each example the models'
    answers (their share of right ones over the seeds) change places with probability
    one half. It says whether the difference would hold on other texts; that it would
    hold for other seeds shows in the standard deviation beside it.

    Args:
        first: whether each answer was right, for each seed.
        second: the same examples and as many seeds of the other model.
        draws: of random exchanges.
        seed: of the draws.
    """
    difference = first.mean(0) - second.mean(0)
    moved = difference[difference != 0]  # where both are alike nothing changes
    observed = abs(moved.sum())
    chance = np.random.default_rng(seed)
    as_large = 0
    for _ in range(draws):
        signs = chance.integers(0, 2, len(moved)) * 2 - 1
        as_large += abs((signs * moved).sum()) >= observed - 1e-9
    return float((as_large + 1) / (draws + 1))


COLUMNS = (
    "variant",
    "seeds",
    "dev",
    "test",
    "p",
    "context",
    "λ₂",
    "parameters",
    "s/epoch",
    "chosen",
)
LEGEND = (
    "dev and test: accuracy in per cent, mean ± standard deviation over the seeds; p: "
    "of the difference in test accuracy to {reference}, paired by test example "
    "(permutation test, the seeds that both have); context: how much an edge into a "
    "word depends on the word it comes from; λ₂: second largest size of an eigenvalue "
    "of the graph (for both, 0 is self-attention); chosen: of the grid, by dev "
    "accuracy with seed 0."
)


@dataclass(frozen=True)
class Line:
    """What the seeds of one variant gave; accuracies in per cent.

    Attributes:
        variant: its name.
        seeds: how many runs there are.
        dev: mean accuracy.
        dev_deviation: standard deviation over the seeds; None for one seed.
        test: mean accuracy; None without test data.
        test_deviation: likewise.
        p_value: of the difference to the reference; None for itself.
        graphs: mean context dependence and second eigenvalue of each level's graphs.
        parameters: how many numbers are learnt.
        epoch_seconds: of training, the median.
        chosen: settings of the grid's point that was chosen.
    """

    variant: str
    seeds: int
    dev: float
    dev_deviation: float | None
    test: float | None
    test_deviation: float | None
    p_value: float | None
    graphs: Sequence[tuple[float, float]]
    parameters: int
    epoch_seconds: float
    chosen: str

    def cells(self) -> list[str]:
        """Return what stands in each of `COLUMNS`."""
        return [
            self.variant,
            str(self.seeds),
            with_deviation(self.dev, self.dev_deviation),
            with_deviation(self.test, self.test_deviation),
            p_value_text(self.p_value),
            ", ".join(f"{context:.2f}" for context, _ in self.graphs),
            ", ".join(f"{eigenvalue:.2f}" for _, eigenvalue in self.graphs),
            f"{self.parameters:,}",
            f"{self.epoch_seconds:.1f}",
            self.chosen,
        ]


def summarise(study: Study, records: Sequence[Record]) -> list[Line]:
    """Return a line for each variant whose grid is done, of the seeds that are."""
    runs = {name: chosen_runs(study, name, records) for name in study.variants}
    reference = runs[study.compared_with]
    return [
        _line(study, name, own, None if name == study.compared_with else reference)
        for name, own in runs.items()
        if own
    ]


def chosen_runs(study: Study, variant: str, records: Sequence[Record]) -> list[Record]:
    """Return the runs of the point that is best on dev, in the order of the seeds."""
    own = [record for record in records if record.variant == variant]
    tuning = sorted((r for r in own if r.seed == 0), key=lambda r: r.point)
    if len(tuning) < len(study.grid):
        return []
    best = max(tuning, key=lambda record: record.dev)  # of equals the first
    of_point = [record for record in own if record.point == best.point]
    return sorted(of_point, key=lambda record: record.seed)


def _line(
    study: Study, name: str, runs: Sequence[Record], reference: Sequence[Record] | None
) -> Line:
    if len({run.data for run in runs}) > 1:
        raise DataError(
            f"the runs of {name} were not all trained on the same data, and have no "
            "mean; run it anew with another --out"
        )
    dev, dev_deviation = _over_seeds([run.dev for run in runs])
    tests = [run.test for run in runs if run.test is not None]
    test, test_deviation = _over_seeds(tests) if tests else (None, None)
    first = runs[0]
    levels = zip(*(_pairs(run.graphs) for run in runs), strict=True)
    return Line(
        variant=name,
        seeds=len(runs),
        dev=dev,
        dev_deviation=dev_deviation,
        test=test,
        test_deviation=test_deviation,
        p_value=_p_value(runs, reference) if reference and tests else None,
        graphs=[tuple(np.mean(level, 0).tolist()) for level in levels],
        parameters=first.parameters,
        epoch_seconds=float(np.median([run.epoch_seconds for run in runs])),
        chosen=", ".join(study.tuned(name, first.point)),
    )


def _over_seeds(shares: Sequence[float]) -> tuple[float, float | None]:
    values = 100 * np.array(shares)
    several = len(values) > 1
    return float(values.mean()), float(values.std(ddof=1)) if several else None


def _pairs(graphs: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    return [(g["context_dependence"], g["second_eigenvalue"]) for g in graphs]


def _p_value(runs: Sequence[Record], reference: Sequence[Record]) -> float | None:
    """Return p over the seeds that both have; None if they share none."""
    seeds = {run.seed for run in runs} & {run.seed for run in reference}
    own, other = ([r for r in of if r.seed in seeds] for of in (runs, reference))
    if not seeds:
        return None
    if len({run.tested for run in (*own, *other)}) > 1:
        raise DataError(
            f"{runs[0].variant} and {reference[0].variant} were tested on other texts "
            "and cannot be compared"
        )
    first, second = (np.stack([run.answers() for run in of]) for of in (own, other))
    return paired_p_value(first, second)


def markdown(study: Study, lines: Sequence[Line]) -> str:
    """Return a Markdown table, and what its columns mean."""
    table = markdown_table(COLUMNS, [line.cells() for line in lines])
    return f"{table}\n\n{LEGEND.format(reference=study.compared_with)}\n"


def csv_rows(records: Sequence[Record]) -> list[list[str]]:
    """Return a row for each run, with what it takes to get its numbers again."""
    names = [
        *("variant", "point", "seed", "dev", "test", "epochs", "best_epoch"),
        *("parameters", "epoch_seconds", "commit", "data", "command"),
    ]
    graph = ("context_dependence", "second_eigenvalue")
    rows = [[*names, *graph]]
    for record in records:
        measured = [[f"{level[name]:.4f}" for level in record.graphs] for name in graph]
        own = [str(getattr(record, name)) for name in names]
        rows.append([*own, *(" ".join(values) for values in measured)])
    return rows
