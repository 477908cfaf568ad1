"""``perron study`` and ``perron compare``."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from perron.cli import keep_freed_memory, limit_threads, options
from perron.cli.console import is_main_process, print_message, results
from perron.cli.options import Quiet, TrainOptions, with_options
from perron.errors import PerronError, SettingsError

if TYPE_CHECKING:
    from perron.experiments.records import RunRecord
    from perron.experiments.report import SummaryRow
    from perron.experiments.study import BaselineName, Study, Trial
    from perron.training.callbacks import Callback

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
DEFAULT_AGGREGATORS = "centrality,self-attention,max,mean"


def study(
    file: Annotated[
        str,
        typer.Argument(
            help="TOML file of the study, such as papers/gong2019/studies/sst2.toml."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the runs. Defaults to runs/studies/NAME, where NAME is the "
            "name of the file without its extension."
        ),
    ] = None,
    seeds: options.Seeds = None,
    workers: options.Workers = 1,
    data_dir: options.DataDir = None,
    vectors: options.Vectors = None,
    set_: options.Set = None,
    quiet: Quiet = False,
) -> None:
    """Train variants of a recipe with several seeds and compare them.

    All variants are tuned with the same budget, and differences in accuracy are tested
    for significance. To resume an interrupted study, run the same command again;
    finished runs are not repeated. Several commands running at the same
    time share the runs.

    Examples:

        perron study papers/gong2019/studies/sst2.toml --workers 2

        perron study mine.toml --out runs/mine
    """
    from perron.cli.runs import EncodingBar
    from perron.experiments import read_study, run_study

    overrides = [*vector_overrides(vectors), *(set_ or ())]
    loaded = read_study(file, overrides, seeds)
    folder = out or Path("runs") / "studies" / Path(file).stem
    if workers > 1:
        run_workers(workers)
    limit_threads()
    keep_freed_memory()
    encoding = EncodingBar()
    try:
        records = run_study(
            loaded,
            folder,
            root=data_dir,
            on_trial=partial(start_trial, quiet),
            encoding_progress=None if quiet else encoding,
        )
    finally:
        encoding.stop()
    report(loaded, records, folder, "study", quiet)


@with_options(TrainOptions)
def compare(
    options: TrainOptions,
    aggregators: Annotated[
        str,
        typer.Option(
            help="Aggregators to compare, separated by spaces or commas. Settings "
            "follow a colon: 'centrality:num_heads=2 dynamic-routing:reverse=true max'."
        ),
    ] = DEFAULT_AGGREGATORS,
    baselines: Annotated[
        str,
        typer.Option(
            help="Baselines to compare with, separated by spaces or commas: logistic "
            "regression on TF-IDF of words and word pairs (tfidf), or on the mean of a "
            "frozen pretrained encoder's states or of word vectors (mean)."
        ),
    ] = "",
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds. The seeds are 0, 1, 2, ...")
    ] = 3,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the runs. Defaults to runs/compare-NAME, where NAME is the "
            "name of the recipe or the data file."
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train several aggregators with several seeds and compare them.

    Differences in accuracy are tested for significance. To resume an interrupted
    comparison, run the same command again; finished runs are not repeated. To add
    seeds, run it again with a larger --seeds.

    Examples:

        perron compare demo --seeds 1

        perron compare sst2 --aggregators "centrality self-attention mean" --seeds 5

        perron compare --data reviews.csv --baselines tfidf,mean
    """
    from perron.cli.runs import EncodingBar, resolve_recipe
    from perron.experiments import compare as run_comparison

    folder = out or Path("runs") / f"compare-{options.name}"
    limit_threads()
    keep_freed_memory()
    encoding = EncodingBar()
    try:
        comparison, records = run_comparison(
            resolve_recipe(options),
            [] if baselines and not aggregators.strip() else split_names(aggregators),
            seeds,
            folder,
            baselines=split_baselines(baselines),
            title=f"Aggregators on {options.name}",
            on_trial=partial(start_trial, quiet),
            encoding_progress=None if quiet else encoding,
        )
    finally:
        encoding.stop()
    report(comparison, records, folder, "compare", quiet)


def split_names(text: str) -> list[str]:
    """Split a list of aggregators, keeping comma-separated settings together."""
    names: list[str] = []
    for part in text.replace(",", " ").split():
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    if not names or len(set(names)) != len(names):
        raise SettingsError(
            f"--aggregators must be a list of distinct aggregators, got {text!r}."
        )
    return names


def split_baselines(text: str) -> "list[BaselineName]":
    """Parse a list of baselines."""
    from perron.experiments.study import BASELINES

    names = text.replace(",", " ").split()
    known = [name for name in BASELINES if name in names]
    if sorted(known) != sorted(names):
        raise SettingsError(
            f"--baselines must contain only {' and '.join(BASELINES)}, each at most "
            f"once, got {text!r}."
        )
    return known


def report(
    study: "Study", records: "Sequence[RunRecord]", folder: Path, name: str, quiet: bool
) -> None:
    """Write the report of a study and print its table."""
    if not is_main_process():
        return
    from perron.experiments.baselines import describe_wins
    from perron.experiments.report import write_report

    notes = describe_wins(study, records)
    results.print(rich_table(study, write_report(study, records, folder, name, notes)))
    for note in notes:
        results.print(note, markup=False)
    if not quiet:
        files = [f"{name}.md", f"{name}.json", f"{name}.png", "runs.csv"]
        print_message(f"Saved in {folder}: {', '.join(files)}, records.jsonl")


def rich_table(
    study: "Study", rows: "Sequence[SummaryRow]", width: int | None = None
) -> Table:
    """Return the table of a study for display in a terminal.

    Args:
        study: Study.
        rows: Rows of the table.
        width: Characters per line. The last columns are left out if they do not fit.
            Defaults to the width of the terminal.
    """
    from perron.experiments.report import TableColumn, columns, explain_p_values

    width = width or results.width
    shown: list[TableColumn] = []
    used = 1
    for column in columns(study, rows):
        used += 3 + max(len(text) for text in (column.name, *column.cells))
        if used > width and shown:
            break
        shown.append(column)
    is_tested = any(column.name == "p" for column in shown)
    caption = f"p: {explain_p_values(study, rows)}" if is_tested else None
    names = [column.name for column in shown]
    table = Table(*names, title=study.title, caption=caption)
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*cells)
    return table


def vector_overrides(vectors: Sequence[str] | None) -> list[str]:
    """Convert --vectors to overrides of a recipe."""
    if vectors is None:
        return []
    return [f"vectors={json.dumps([name for name in vectors if name != 'none'])}"]


def start_trial(
    quiet: bool, trial: "Trial", done: int, known: int
) -> "Sequence[Callback]":
    """Print the command of a run that is about to start; return its callbacks."""
    from perron.cli.runs import ThreadLimit, TrainingBar

    if quiet:
        return (ThreadLimit(),)
    point = f", point {trial.point}" if len(trial.study.grid) > 1 else ""
    title = f"{trial.variant}{point}, seed {trial.seed}:"
    print_message(f"run {done + 1} of {known}: {trial.command}")
    return ThreadLimit(), TrainingBar(title)


def run_workers(
    workers: int, arguments: Sequence[str] | None = None, module: str = "perron"
) -> None:
    """Run a command in several processes that share the CPU cores.

    The command must skip work that another process has claimed. Two processes with one
    thread each train small models faster than one process with two threads.

    Args:
        workers: Number of processes.
        arguments: Arguments of the command. Defaults to those of this process, without
            ``--workers``.
        module: Module to run, as in ``python -m perron``.
    """
    from perron.training.state import sigterm_as_interrupt

    threads = str(max(1, (os.cpu_count() or 1) // workers))
    environment = os.environ | {name: threads for name in _THREAD_VARIABLES}
    if arguments is None:
        arguments = without_workers(sys.argv[1:])
    command = [sys.executable, "-m", module, *arguments]
    # Through a pipe, workers print lines, which can be interleaved, and no bars.
    read_end, write_end = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []
    with sigterm_as_interrupt():
        try:
            for _ in range(workers):
                processes.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdout=subprocess.DEVNULL,
                        stderr=write_end,
                    )
                )
            os.close(write_end)
            with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    print_message(line.rstrip("\n"))
            failed = [process for process in processes if process.wait() != 0]
        finally:  # workers take a moment to save a checkpoint
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
    if failed:
        raise PerronError(
            f"{len(failed)} of {workers} processes failed; see the messages above. Run "
            "the same command again to resume."
        )


def without_workers(arguments: list[str]) -> list[str]:
    """Return the arguments without --workers and its value."""
    remaining = []
    skip = False
    for argument in arguments:
        if skip or argument.startswith("--workers="):
            skip = False
        elif argument == "--workers":
            skip = True
        else:
            remaining.append(argument)
    return remaining
