"""The command-line application: commands, global options and error handling."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from perron import __version__
from perron.cli.console import print_error
from perron.cli.graph import graph
from perron.cli.info import cache_app, data_app, info
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
app.add_typer(cache_app, name="cache")


def _print_version(is_requested: bool) -> bool:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit
    return is_requested


@app.callback()
def _options(
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="MODULE",
            help="Import a Python module that defines your own components, such as "
            "aggregators or data formats. Can be repeated. The environment variable "
            "PERRON_PLUGINS can also contain a comma-separated list of modules.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the full traceback of errors.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Train, compare and use text classifiers with centrality-based pooling."""
    load_plugins(plugin or ())


def run() -> None:
    """Run the `perron` application."""
    run_app(app)


def run_app(app: typer.Typer) -> None:
    """Run an application; exit with status 0, 1 (failure) or 2 (invalid usage).

    The options --debug and --plugin may appear anywhere before ``--``.
    """
    arguments, plugins, debug = split_global_options(sys.argv[1:])
    try:
        if plugins:
            load_plugins(plugins)
        app(arguments)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader closed the pipe. Redirect standard output, or Python would report
        # the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except UnicodeEncodeError as error:
        if debug:
            raise
        print_error(
            f"standard output uses the encoding {error.encoding}, which cannot "
            "represent some characters. Set PYTHONIOENCODING=utf-8, or write to a file "
            "with --out."
        )
        sys.exit(1)
    except (PerronError, OSError) as error:
        if debug:
            raise
        print_error(str(error))
        sys.exit(_exit_status(error))


def split_global_options(arguments: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """Return the remaining arguments, the plugins, and whether --debug is set."""
    remaining: list[str] = []
    plugins: list[str] = []
    debug = False
    iterator = iter(arguments)
    for argument in iterator:
        if argument == "--":
            remaining += [argument, *iterator]
        elif argument == "--debug":
            debug = True
        elif argument.startswith("--plugin="):
            plugins.append(argument.partition("=")[2])
        elif argument == "--plugin" and (module := next(iterator, None)) is not None:
            plugins.append(module)
        else:
            remaining.append(argument)
    return remaining, plugins, debug


def _exit_status(error: Exception) -> int:
    """Return 2 for invalid usage, 128 + signal if a signal stopped the run, else 1."""
    if isinstance(error, SettingsError):
        return 2
    signal = getattr(error, "signal_number", None)
    return 1 if signal is None else 128 + int(signal)
