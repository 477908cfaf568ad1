"""Comparisons of aggregators on one dataset, over several seeds."""

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from perron.errors import DataError, SettingsError
from perron.experiments.report import paired_p_value
from perron.files import write_whole
from perron.pooling import AGGREGATORS
from perron.registry import options_of
from perron.tables import markdown_table, p_value_text, with_deviation
from perron.training.callbacks import Watcher
from perron.training.prepare import Prepared
from perron.training.recipe import Recipe, read_recipe
from perron.training.run import Result, read_predictions, train

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


REFERENCE = "centrality"
SPEED_REFERENCE = "self-attention"


def variant(recipe: Recipe, aggregator: str, seed: int) -> Recipe:
    """Return the recipe with another aggregator and seed.

    Args:
        recipe: the rest of it stays.
        aggregator: a name, with settings where wanted:
            ``dynamic-routing:reverse=true,capsules=4``. ``hidden`` is that of the
            recipe unless given, where the aggregator has one.
        seed: of training.
    """
    name, _, options = aggregator.partition(":")
    chosen: dict[str, Any] = {"name": name}
    for option in filter(None, options.split(",")):
        key, _, value = option.partition("=")
        try:
            chosen[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            chosen[key] = value
    table = recipe.model_dump(mode="json", exclude_none=True)
    own = table["model"]["aggregator"]
    if name == own["name"]:
        chosen = own | chosen
    elif (
        "hidden" in own
        and name in AGGREGATORS
        and ("hidden" in options_of(AGGREGATORS[name]))
    ):
        chosen = {"hidden": own["hidden"]} | chosen
    table["model"]["aggregator"] = chosen
    table["model"].pop("sentence_aggregator", None)
    table["training"]["seed"] = seed
    return read_recipe(table, where=f"--aggregators {aggregator}")


def compare(
    recipe: Recipe,
    aggregators: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    *,
    root: Path | None = None,
    on_run: Callable[[str, int], Sequence[Watcher]] | None = None,
) -> list[Line]:
    """Train every aggregator with every seed; runs that are there are not run again.

    Aggregators take turns within a seed, so that their times compare. Writes
    compare.json, compare.md and compare.png.

    Args:
        recipe: what they share.
        aggregators: see `variant`.
        seeds: of the runs.
        folder: holds a folder for each run.
        root: folder of the datasets.
        on_run: gives the watchers of a run before it begins.
    """
    variants = {
        (aggregator, seed): variant(recipe, aggregator, seed)
        for seed in seeds
        for aggregator in aggregators
    }
    results: dict[str, list[Result]] = {aggregator: [] for aggregator in aggregators}
    for (aggregator, seed), each in variants.items():
        place = run_folder(folder, aggregator, seed)
        watchers = on_run(aggregator, seed) if on_run else ()
        result = train(
            each,
            place,
            root=root,
            resume=True,
            watchers=watchers,
            on_prepared=_check_test,
        )
        results[aggregator].append(result)
    lines = _summary(results, folder, seeds)
    write_whole(
        folder / "compare.json",
        json.dumps([asdict(line) for line in lines], indent=2).encode(),
    )
    write_whole(folder / "compare.md", markdown(lines).encode())
    draw(lines, folder / "compare.png")
    return lines


def _check_test(prepared: Prepared) -> None:
    if prepared.test is None:
        raise SettingsError("compare needs test data, and there is none")


def run_folder(folder: Path, aggregator: str, seed: int) -> Path:
    """Return the folder of one run."""
    name = aggregator.replace(":", "-").replace("=", "-").replace(",", "-")
    return folder / f"{name}-{seed}"


def _summary(
    results: dict[str, list[Result]], folder: Path, seeds: Sequence[int]
) -> list[Line]:
    _, expected = read_predictions(run_folder(folder, next(iter(results)), seeds[0]))
    right = {name: _right(folder, name, seeds, expected) for name in results}
    seconds = {
        name: float(np.median([run.epoch_seconds for run in runs]))
        for name, runs in results.items()
    }
    base = seconds.get(SPEED_REFERENCE)
    lines = []
    for name, runs in results.items():
        tests = 100 * right[name].mean(1)
        p_value = None
        if name != REFERENCE and REFERENCE in results:
            p_value = paired_p_value(right[REFERENCE], right[name])
        lines.append(
            Line(
                name,
                len(runs),
                float(tests.mean()),
                float(tests.std(ddof=1)) if len(runs) > 1 else None,
                float(np.mean([100 * run.dev["accuracy"] for run in runs])),
                p_value,
                seconds[name],
                None if base is None else seconds[name] / base,
            )
        )
    return lines


def _right(
    folder: Path, aggregator: str, seeds: Sequence[int], expected: np.ndarray
) -> np.ndarray:
    """Return for each seed whether each test example was got right, (seeds, n)."""
    rows = []
    for seed in seeds:
        place = run_folder(folder, aggregator, seed)
        predicted, own = read_predictions(place)
        if not np.array_equal(own, expected):
            problem = "was tested on other texts than the first run; remove it"
            raise DataError(problem, place)
        rows.append(predicted == own)
    return np.stack(rows)
