"""The reference of the command line, made from the commands themselves."""

import inspect
import re
from typing import Any

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put the commands in the place of the mark."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def commands() -> str:
    """Return a section for each command."""
    import typer

    from perron.cli.app import app

    return "\n\n".join(_section("perron", typer.main.get_command(app)))


def _section(path: str, command: Any) -> list[str]:
    found = []
    inside = getattr(command, "commands", None)
    if inside is None:
        found = [f"## `{path}`", _prose(command.help), _table(command.params)]
    for name, each in (inside or {}).items():
        found += _section(f"{path} {name}", each)
    return found


def _prose(text: str) -> str:
    """Return a docstring with its examples as a block."""
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
    return f"{text} Unless given: `{default}`."
