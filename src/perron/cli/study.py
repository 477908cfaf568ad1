"""``perron study``: many runs that answer one question."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from perron.cli import options
from perron.cli.console import results, say

if TYPE_CHECKING:
    from perron.experiments.runner import Trial
    from perron.training.callbacks import Watcher


def study(
    name: Annotated[
        str,
        typer.Argument(
            help="TOML file of the study, such as papers/gong2019/studies/sst2.toml."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs [runs/studies/NAME].")
    ] = None,
    seeds: options.Seeds = None,
    workers: options.Workers = 1,
    data_dir: options.DataDir = None,
    vectors: options.Vectors = None,
    set_: options.Set = None,
    quiet: options.Quiet = False,
) -> None:
    """Run variants of a recipe with several seeds, tuned alike; test if they differ.

    Runs that are done are not run again, and a run that was stopped goes on: type the
    same command once more. Several such commands at once share the work.

    Examples:

        perron study papers/gong2019/studies/sst2.toml --workers 2

        perron study mine.toml --out runs/mine
    """
    from perron.cli.workers import share_work
    from perron.experiments import read_study, run_study
    from perron.experiments.report import COLUMNS, csv_rows, markdown, summarise
    from perron.files import write_whole
    from perron.tables import csv_bytes

    overrides = [*vector_overrides(vectors), *(set_ or ())]
    asked = read_study(name, overrides, seeds)
    folder = out or Path("runs") / "studies" / Path(name).stem
    if workers > 1:
        share_work(workers)
    records = run_study(
        asked,
        folder,
        root=data_dir,
        on_trial=None if quiet else tell_trial,
    )
    lines = summarise(asked, records)
    write_whole(folder / "study.md", markdown(asked, lines).encode())
    write_whole(folder / "runs.csv", csv_bytes(csv_rows(records)))
    table = Table(*COLUMNS, title=asked.title)
    for line in lines:
        table.add_row(*line.cells())
    results.print(table)
    if not quiet:
        say(f"Also in {folder}: study.md, runs.csv, records.jsonl")


def vector_overrides(vectors: Sequence[str] | None) -> list[str]:
    """Return --vectors as settings."""
    import json

    if vectors is None:
        return []
    return [f"vectors={json.dumps([name for name in vectors if name != 'none'])}"]


def tell_trial(trial: "Trial", done: int, known: int) -> "Sequence[Watcher]":
    """Say which run begins."""
    from perron.cli.progress import TrainingBar

    title = f"{trial.variant}, point {trial.point}, seed {trial.seed}:"
    say(f"run {done + 1} of {known}: {trial.command}")
    return (TrainingBar(trial.recipe().training, title),)
