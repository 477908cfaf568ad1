"""``perron reproduce``: the paper's tables and figures, ours beside theirs."""

from pathlib import Path
from typing import Annotated

import typer

from perron.cli import options
from perron.cli.console import results, say
from perron.errors import SettingsError


def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, table4, figure1, convergence, graph, timing, "
            "attention-maps, or all."
        ),
    ],
    data_dir: options.DataDir = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the results; runs are in its folder runs.")
    ] = Path("runs/reproduction"),
    vectors: options.Vectors = None,
    set_: options.Set = None,
    seeds: options.Seeds = None,
    workers: options.Workers = 1,
    only_done: Annotated[
        bool,
        typer.Option("--only-done", help="Train nothing; say what is not there."),
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a table or figure of the paper from real data, beside the paper's numbers.

    Writes Markdown, CSV, SVG and PNG. Data that are not there are named, with how to
    get them. Runs that are done are not run again, and a run that was stopped goes on:
    type the same command once more. All of it takes hours.

    Examples:

        perron reproduce table1 --data-dir ~/data

        perron reproduce table3 --data-dir ~/data --vectors glove.840B.300d.zip

        perron reproduce all --data-dir ~/data --workers 2
    """
    from perron.cli.study import tell_trial, vector_overrides
    from perron.cli.workers import share_work
    from perron.files import make_folder
    from perron.reproduction.reproduce import ALL, MANY_RUNS, TARGETS
    from perron.reproduction.work import Work

    if target not in (*TARGETS, ALL):
        raise SettingsError(
            f"there is no {target!r}: take one of {', '.join(TARGETS)}, or {ALL}"
        )
    if data_dir is not None and not data_dir.is_dir():
        raise SettingsError(f"--data-dir {data_dir}: there is no such folder")
    make_folder(out)
    work = Work(
        out,
        data_dir,
        [*vector_overrides(vectors), *(set_ or ())],
        seeds,
        None if quiet else tell_trial,
        only_done,
    )
    shared = [f"--out={out}", *(["--quiet"] if quiet else [])]
    shared += [] if data_dir is None else [f"--data-dir={data_dir}"]
    shared += [] if seeds is None else [f"--seeds={seeds}"]
    shared += [f"--set={setting}" for setting in work.overrides]
    for name in TARGETS if target == ALL else [target]:
        if workers > 1 and name in MANY_RUNS and not only_done:
            share_work(workers, ["reproduce", name, *shared])
        piece = TARGETS[name](work)
        written = piece.write(out)
        results.print(f"{piece.title}\n\n{piece.text}")
        if not quiet:
            told = f"Written: {', '.join(map(str, written))}"
            say(told if written else f"{out / name}.md, made before, stays as it is")
