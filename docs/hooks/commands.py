"""Command-line reference, generated from the commands."""

import inspect
import re
from typing import Any

PLACEHOLDER = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the placeholder with the reference."""
    if PLACEHOLDER not in markdown:
        return markdown
    return markdown.replace(PLACEHOLDER, command_reference())


def command_reference() -> str:
    """Return one section per command."""
    import typer

    from perron.cli.app import app

    return "\n\n".join(_sections("perron", typer.main.get_command(app)))


def _sections(path: str, command: Any) -> list[str]:
    """Return the blocks of a command, or of all commands of a group."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        return [f"## `{path}`", _description(command.help), _table(command.params)]
    return [
        block
        for name, subcommand in subcommands.items()
        for block in _sections(f"{path} {name}", subcommand)
    ]


def _description(text: str) -> str:
    """Return a docstring as Markdown, with its examples in a code block."""
    prose, _, examples = inspect.cleandoc(text).partition("Examples:\n")
    prose = re.sub(r"(?<= )(/\S+[^\s.,])", r"`\1`", prose)
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    return prose + "\n\n```text\n" + "\n".join(lines) + "\n```" if lines else prose


def _table(params: list[Any]) -> str:
    rows = [
        f"| {_name(param)} | {_help(param)} |"
        for param in params
        if param.name not in ("help", "install_completion", "show_completion")
    ]
    return "\n".join(["| option | |", "|---|---|", *rows])


def _name(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{param.name.upper()}`" + ("…" if param.nargs == -1 else "")
    return ", ".join(f"`{name}`" for name in param.opts)


def _help(param: Any) -> str:
    text = (param.help or "").replace("|", "\\|")
    text = re.sub(r"(?<![\w/`])(--[\w-]+|/[\w/]+)", r"`\1`", text)
    default = param.default
    if default in (None, False, ()) or callable(default):
        return text
    return f"{text} Defaults to `{default}`."
