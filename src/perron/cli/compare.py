"""``perron compare``: aggregators against each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from perron.cli.console import is_first, results, say
from perron.cli.options import Quiet, TrainOptions, with_options
from perron.errors import SettingsError

if TYPE_CHECKING:
    from perron.experiments.compare import Line

DEFAULT = "centrality,self-attention,max,mean"


@with_options(TrainOptions)
def compare(
    options: TrainOptions,
    aggregators: Annotated[
        str,
        typer.Option(
            help="Names, with settings after a colon, separated by spaces or commas: "
            "'centrality:heads=2 dynamic-routing:reverse=true max'."
        ),
    ] = DEFAULT,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds: 0, 1, 2, ...")
    ] = 3,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the runs. Defaults to runs/compare-RECIPE."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train several aggregators with several seeds; test whether they differ.

    Runs that are done are not run again, and a run that was stopped goes on: type the
    same command once more, or ask for more seeds.

    Examples:

        perron compare demo --seeds 1

        perron compare sst2 --aggregators "centrality self-attention mean" --seeds 5
    """
    from perron.cli.choose import choose_recipe
    from perron.cli.progress import TrainingBar
    from perron.experiments.compare import compare as run_comparison
    from perron.training.callbacks import Watcher

    chosen = choose_recipe(options)
    names = split_names(aggregators)
    folder = out or Path("runs") / f"compare-{options.name}"

    def begin(aggregator: str, seed: int) -> Sequence[Watcher]:
        title = f"{aggregator}, seed {seed}:"
        return () if quiet else (TrainingBar(chosen.training, title),)

    lines = run_comparison(chosen, names, range(seeds), folder, on_run=begin)
    if not is_first():
        return
    results.print(comparison_table(lines))
    if not quiet:
        say(f"Also in {folder}: compare.md, compare.json, compare.png")


def split_names(text: str) -> list[str]:
    """Return the aggregators named; a comma parts settings too, after a colon."""
    names: list[str] = []
    for part in text.replace(",", " , ").split():
        if part == ",":
            continue
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    if not names or len(set(names)) != len(names):
        raise SettingsError(f"--aggregators {text}: name each aggregator once")
    return names


def comparison_table(lines: Sequence["Line"]) -> Table:
    """Return the comparison for the terminal."""
    from perron.experiments.compare import COLUMNS

    table = Table(*COLUMNS)
    for line in lines:
        table.add_row(*line.cells())
    return table
