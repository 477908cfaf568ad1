"""All commands, their global options, and the handling of errors."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from perron import __version__
from perron.cli.console import print_error
from perron.cli.graph import graph
from perron.cli.info import data_app, info
from perron.cli.predict import encode, evaluate, predict
from perron.cli.serve import export, serve
from perron.cli.study import compare, study
from perron.cli.train import finish, train
from perron.errors import PerronError, SettingsError
from perron.registry import load_plugins

app = typer.Typer(
    name="perron",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    train,
    finish,
    evaluate,
    compare,
    study,
    predict,
    encode,
    graph,
    serve,
    export,
    info,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(data_app, name="data")


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(__version__)
        raise typer.Exit
    return asked


@app.callback()
def _options(
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="MODULE",
            help="Python module with components of your own, such as aggregators or "
            "data formats; repeatable. The environment variable PERRON_PLUGINS names "
            "modules too, separated by commas.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """Pool words by centrality: train, compare and use text classifiers."""
    load_plugins(plugin or ())


def run() -> None:
    """Run the command that was typed."""
    run_app(app)


def run_app(app: typer.Typer) -> None:
    """Run an app on the command line; exit with 0, 1 (failure) or 2 (misuse).

    The options --debug and --plugin may stand anywhere before ``--``.
    """
    arguments, plugins, debug = split_global_options(sys.argv[1:])
    try:
        if plugins:
            load_plugins(plugins)
        app(arguments)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Who read our output has had enough. Python would complain once more when it
        # closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except UnicodeEncodeError as error:
        if debug:
            raise
        print_error(
            f"standard output takes {error.encoding} only, and this has other "
            "characters: set PYTHONIOENCODING=utf-8, or write to a file with --out"
        )
        sys.exit(1)
    except (PerronError, OSError) as error:
        if debug:
            raise
        print_error(str(error))
        sys.exit(_status(error))


def split_global_options(arguments: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """Return the other arguments, the plugins, and whether to debug."""
    rest: list[str] = []
    plugins: list[str] = []
    debug = False
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == "--debug":
            debug = True
        elif word.startswith("--plugin="):
            plugins.append(word.partition("=")[2])
        elif word == "--plugin" and (module := next(words, None)) is not None:
            plugins.append(module)
        else:
            rest.append(word)
    return rest, plugins, debug


def _status(error: Exception) -> int:
    """Return 2 for misuse, 128 + signal for a run that was stopped, as shells do."""
    if isinstance(error, SettingsError):
        return 2
    signal = getattr(error, "signal_number", None)
    return 1 if signal is None else 128 + int(signal)
