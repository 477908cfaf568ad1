"""The command that makes the tables and figures of the paper."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from papers.gong2019.accuracy_tables import table3, table4
from papers.gong2019.attention_maps import attention_maps
from papers.gong2019.convergence import convergence
from papers.gong2019.data_tables import table1, table2
from papers.gong2019.figures import figure1, graph
from papers.gong2019.timing import timing
from papers.gong2019.work import COMMAND, Piece, Work
from perron.cli import options
from perron.cli.app import run_app
from perron.cli.console import results, say
from perron.cli.study import share_work, tell_trial, vector_overrides
from perron.errors import SettingsError
from perron.files import make_folder

TARGETS: dict[str, Callable[[Work], Piece]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "figure1": figure1,
    "convergence": convergence,
    "graph": graph,
    "timing": timing,
    "attention-maps": attention_maps,  # not in the paper
}
ALL = "all"
MANY_RUNS = ("table3", "table4")  # several processes may share them

app = typer.Typer(
    name=COMMAND,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> None:
    """Run the command that was typed."""
    run_app(app)


@app.command()
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
        Path, typer.Option(help="Output folder. The runs are in its subfolder runs.")
    ] = Path("runs/reproduction"),
    vectors: options.Vectors = None,
    set_: options.Set = None,
    seeds: options.Seeds = None,
    workers: options.Workers = 1,
    only_done: Annotated[
        bool,
        typer.Option("--only-done", help="Train nothing; list the missing runs."),
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a table or figure from real data, with the paper's numbers next to ours.

    Writes Markdown, CSV, SVG and PNG files. Missing datasets are listed, with how to
    get them. Finished runs are not repeated, and a stopped run is resumed by typing the
    same command again. All targets together take hours.

    Examples:

        python -m papers.gong2019 table1 --data-dir ~/data

        python -m papers.gong2019 table3 --data-dir ~/data --vectors glove.840B.300d.zip

        python -m papers.gong2019 all --data-dir ~/data --workers 2
    """
    if target not in (*TARGETS, ALL):
        raise SettingsError(
            f"TARGET must be one of {', '.join(TARGETS)} or {ALL}, got {target!r}."
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
            share_work(workers, [name, *shared], module="papers.gong2019")
        piece = TARGETS[name](work)
        written = piece.write(out)
        results.print(f"{piece.title}\n\n{piece.text}")
        if not quiet:
            files = ", ".join(map(str, written))
            say(f"Written: {files}" if files else f"Kept: {out / name}.md")
