"""``perron compare``: aggregators against each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from perron.cli import options
from perron.cli.console import is_first, results, say
from perron.errors import SettingsError

if TYPE_CHECKING:
    from perron.experiments.compare import Line

DEFAULT = "centrality,self-attention,max,mean"


def compare(
    recipe: Annotated[str | None, typer.Argument(help="As for perron train.")] = None,
    aggregators: Annotated[
        str,
        typer.Option(
            help="Names, with settings after a colon, parted by blanks or commas: "
            "'centrality:heads=2 dynamic-routing:reverse=true max'."
        ),
    ] = DEFAULT,
    seeds: Annotated[int, typer.Option(min=1, help="How many: 0, 1, 2, ...")] = 3,
    data: options.Data = None,
    dev_data: Annotated[str | None, typer.Option(help="As --data, for dev.")] = None,
    test_data: Annotated[str | None, typer.Option(help="As --data, for test.")] = None,
    data_format: options.DataFormat = None,
    text: options.Text = None,
    text_pair: options.TextPair = None,
    label: options.Label = None,
    split: options.Split = None,
    documents: options.Documents = False,
    tokenised: options.Tokenised = False,
    data_dir: options.DataDir = None,
    vectors: options.Vectors = None,
    encoder: options.Encoder = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs [runs/compare-RECIPE].")
    ] = None,
    set_: options.Set = None,
    skip_bad: options.SkipBad = False,
    quiet: options.Quiet = False,
) -> None:
    """Train several aggregators with several seeds; test whether they differ.

    Runs that are done are not run again, and a run that was stopped goes on: type the
    same command once more, or ask for more seeds.

    Examples:

        perron compare demo --seeds 1

        perron compare sst2 --aggregators "centrality self-attention mean" --seeds 5
    """
    from perron.cli.choose import Asked, choose_recipe
    from perron.cli.progress import TrainingBar
    from perron.experiments.compare import compare as run_comparison
    from perron.training.callbacks import Watcher

    asked = Asked(
        recipe=recipe,
        data=data,
        data_format=data_format,
        dev_data=dev_data,
        test_data=test_data,
        text=text,
        text_pair=text_pair,
        label=label,
        split=split,
        documents=documents,
        tokenised=tokenised,
        skip_bad=skip_bad,
        vectors=vectors,
        encoder=encoder,
        overrides=set_ or (),
        data_dir=data_dir,
    )
    chosen = choose_recipe(asked)
    names = split_names(aggregators)
    folder = out or Path("runs") / f"compare-{asked.name}"

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
