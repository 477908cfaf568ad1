"""Command line that reproduces the tables and figures of the paper."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from papers.gong2019.accuracy_tables import table3, table4
from papers.gong2019.attention_maps import attention_maps
from papers.gong2019.convergence import convergence
from papers.gong2019.data_tables import table1, table2
from papers.gong2019.figures import figure1, graph
from papers.gong2019.timing import timing
from papers.gong2019.workspace import COMMAND, Artifact, Workspace
from perron.cli import options
from perron.cli.app import run_app
from perron.cli.console import print_message, results
from perron.cli.study import run_workers, start_trial, vector_overrides
from perron.errors import SettingsError
from perron.files import make_folder

TARGETS: dict[str, Callable[[Workspace], Artifact]] = {
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
PARALLEL_TARGETS = ("table3", "table4")  # processes can share their runs

app = typer.Typer(
    name=COMMAND,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> None:
    """Run the command line."""
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
        Path,
        typer.Option(help="Output folder. Runs are written to its subfolder runs."),
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
    """Reproduce a table or figure, with the paper's numbers next to ours.

    Writes Markdown, CSV, SVG and PNG files. If a dataset is missing, the output says
    how to get it. To resume an interrupted command, run it again: finished runs are not
    repeated. All targets together take hours.

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
        raise SettingsError(f"--data-dir {data_dir} does not exist.")
    make_folder(out)
    workspace = Workspace(
        out,
        data_dir,
        [*vector_overrides(vectors), *(set_ or ())],
        seeds,
        partial(start_trial, quiet),
        only_done,
    )
    arguments = [f"--out={out}", *(["--quiet"] if quiet else [])]
    arguments += [] if data_dir is None else [f"--data-dir={data_dir}"]
    arguments += [] if seeds is None else [f"--seeds={seeds}"]
    arguments += [f"--set={setting}" for setting in workspace.overrides]
    for name in TARGETS if target == ALL else [target]:
        if workers > 1 and name in PARALLEL_TARGETS and not only_done:
            run_workers(workers, [name, *arguments], module="papers.gong2019")
        artifact = TARGETS[name](workspace)
        written = artifact.write(out)
        results.print(f"{artifact.title}\n\n{artifact.text}")
        if not quiet:
            files = ", ".join(map(str, written))
            print_message(f"Wrote {files}" if files else f"Kept {out / name}.md")
