"""``perron data``: look at datasets."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from perron.cli.console import results, say
from perron.cli.options import DataOptions, Json, TrainOptions, with_options
from perron.errors import DataError

data_app = typer.Typer(help="Look at datasets.", no_args_is_help=True)


@data_app.command()
@with_options(DataOptions)
def stats(
    options: DataOptions,
    recipes: Annotated[
        list[str] | None,
        typer.Argument(help="Recipes; without, all of the paper that are found."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show sizes, classes, mean length and vocabulary: the paper's Table 1.

    Examples:

        perron data stats sst1 sst2 snli --data-dir ~/data

        perron data stats --data reviews.csv --text review --label stars
    """
    from perron.cli.choose import choose_recipe
    from perron.text.datasets import load_data
    from perron.text.statistics import statistics
    from perron.training import recipe_names

    wanted: list[str | None] = list(recipes or ())
    if not wanted:
        wanted = [None] if options.data else [n for n in recipe_names() if n != "demo"]
    found = {}
    for name in wanted:
        recipe = choose_recipe(TrainOptions(recipe=name, **vars(options)))
        try:
            splits = load_data(recipe.data)
        except DataError as error:
            if recipes or options.data or error.line is not None:
                raise
            say(f"{name}: {error}")
            continue
        found[name or str(options.data)] = statistics(splits, recipe.data, "lower")
    if as_json:
        typer.echo(json.dumps({name: asdict(told) for name, told in found.items()}))
        return
    table = Table("data", "train", "dev", "test", "classes", "mean words", "vocabulary")
    for name, told in found.items():
        table.add_row(
            name,
            *(f"{size:,}" for size in told.sizes.values()),
            str(len(told.labels)),
            f"{told.mean_length:.1f}",
            f"{told.vocabulary:,}",
        )
    results.print(table)
    for name, told in found.items():
        shares = ", ".join(f"{label} {count:,}" for label, count in told.labels.items())
        results.print(f"{name}: {shares}")
        if told.skipped or told.dropped:
            results.print(
                f"{name}: left out {told.skipped} bad rows, {told.dropped} without a "
                "label"
            )
