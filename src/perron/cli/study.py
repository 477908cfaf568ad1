"""``perron study`` and ``perron compare``: many runs that answer one question."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from perron.cli import options
from perron.cli.console import is_main_process, print_message, results
from perron.cli.options import Quiet, TrainOptions, with_options
from perron.errors import PerronError, SettingsError

if TYPE_CHECKING:
    from perron.experiments.records import RunRecord
    from perron.experiments.report import SummaryRow
    from perron.experiments.study import Study, Trial
    from perron.training.callbacks import Callback

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
DEFAULT = "centrality,self-attention,max,mean"


def study(
    name: Annotated[
        str,
        typer.Argument(
            help="TOML file of the study, such as papers/gong2019/studies/sst2.toml."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the runs. Defaults to runs/studies/NAME."),
    ] = None,
    seeds: options.Seeds = None,
    workers: options.Workers = 1,
    data_dir: options.DataDir = None,
    vectors: options.Vectors = None,
    set_: options.Set = None,
    quiet: Quiet = False,
) -> None:
    """Run variants of a recipe with several seeds, and test whether they differ.

    All variants are tuned with equal effort. Finished runs are not repeated, and a
    stopped run is resumed by typing the same command again. Several such commands at
    the same time share the work.

    Examples:

        perron study papers/gong2019/studies/sst2.toml --workers 2

        perron study mine.toml --out runs/mine
    """
    from perron.experiments import read_study, run_study

    overrides = [*vector_overrides(vectors), *(set_ or ())]
    chosen = read_study(name, overrides, seeds)
    folder = out or Path("runs") / "studies" / Path(name).stem
    if workers > 1:
        run_workers(workers)
    records = run_study(
        chosen, folder, root=data_dir, on_trial=None if quiet else print_trial
    )
    report(chosen, records, folder, "study", quiet)


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
    """Train aggregators with several seeds, and test whether they differ.

    This is a study with one variant per aggregator. Finished runs are not repeated, and
    a stopped run is resumed: type the same command again, or ask for more seeds.

    Examples:

        perron compare demo --seeds 1

        perron compare sst2 --aggregators "centrality self-attention mean" --seeds 5
    """
    from perron.cli.runs import resolve_recipe
    from perron.experiments import compare as run_comparison

    folder = out or Path("runs") / f"compare-{options.name}"
    comparison, records = run_comparison(
        resolve_recipe(options),
        split_names(aggregators),
        seeds,
        folder,
        title=f"Aggregators on {options.name}",
        on_trial=None if quiet else print_trial,
    )
    report(comparison, records, folder, "compare", quiet)


def split_names(text: str) -> list[str]:
    """Return the names of aggregators; after a colon, commas separate settings too."""
    names: list[str] = []
    for part in text.replace(",", " , ").split():
        if part == ",":
            continue
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    if not names or len(set(names)) != len(names):
        raise SettingsError(
            f"--aggregators must name each aggregator once, got {text!r}."
        )
    return names


def report(
    study: "Study", records: "Sequence[RunRecord]", folder: Path, name: str, quiet: bool
) -> None:
    """Write the files of a study, and print its table."""
    if not is_main_process():
        return
    from perron.experiments.report import write_report

    results.print(rich_table(study, write_report(study, records, folder, name)))
    if not quiet:
        files = [f"{name}.md", f"{name}.json", f"{name}.png", "runs.csv"]
        print_message(f"Also in {folder}: {', '.join(files)}, records.jsonl")


def rich_table(study: "Study", rows: "Sequence[SummaryRow]") -> Table:
    """Return the table of a study for the terminal."""
    from perron.experiments.report import columns

    shown = columns(study, rows)
    table = Table(*(column.name for column in shown), title=study.title)
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*cells)
    return table


def vector_overrides(vectors: Sequence[str] | None) -> list[str]:
    """Return --vectors as settings."""
    if vectors is None:
        return []
    return [f"vectors={json.dumps([name for name in vectors if name != 'none'])}"]


def print_trial(trial: "Trial", done: int, known: int) -> "Sequence[Callback]":
    """Print which run begins; return its progress bar."""
    from perron.cli.runs import TrainingBar

    point = f", point {trial.point}" if len(trial.study.grid) > 1 else ""
    title = f"{trial.variant}{point}, seed {trial.seed}:"
    print_message(f"run {done + 1} of {known}: {trial.command}")
    return (TrainingBar(title),)


def run_workers(
    workers: int, words: Sequence[str] | None = None, module: str = "perron"
) -> None:
    """Run a command in several processes, each with its share of the cores.

    The command must skip work that another process has claimed. Two processes with one
    thread each train small models faster than one process with two threads.

    Args:
        workers: Number of processes.
        words: Arguments of the command. Defaults to those of this process, without
            ``--workers``.
        module: Module that is the command, as in ``python -m perron``.
    """
    from perron.training.state import sigterm_as_interrupt

    threads = str(max(1, (os.cpu_count() or 1) // workers))
    environment = os.environ | {name: threads for name in _THREADS}
    words = without_workers(sys.argv[1:]) if words is None else words
    command = [sys.executable, "-m", module, *words]
    # They speak through a pipe, for lines are readable when mixed, and bars are not.
    heard, spoken = os.pipe()
    running: list[subprocess.Popen[bytes]] = []
    with sigterm_as_interrupt():
        try:
            for _ in range(workers):
                running.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdout=subprocess.DEVNULL,
                        stderr=spoken,
                    )
                )
            os.close(spoken)
            with os.fdopen(heard, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    print_message(line.rstrip("\n"))
            failed = [process for process in running if process.wait() != 0]
        finally:  # they save what they have, which takes them a moment
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
    if failed:
        raise PerronError(
            f"{len(failed)} of {workers} processes failed; the reason is above. What "
            "is done is kept: type the same command again to go on"
        )


def without_workers(arguments: list[str]) -> list[str]:
    """Return the arguments without --workers and its value."""
    kept = []
    skip = False
    for argument in arguments:
        if skip or argument.startswith("--workers="):
            skip = False
        elif argument == "--workers":
            skip = True
        else:
            kept.append(argument)
    return kept
