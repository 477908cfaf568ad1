"""Word graphs out: to the terminal, or to a file of the format that was asked for."""

import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console

from perron.cli.console import results, say
from perron.cli.outputs import refuse_dash
from perron.errors import SettingsError
from perron.explain import Explanation
from perron.files import write_whole

FORMATS = ("terminal", "html", "svg", "png", "json", "graphml")

_BY_SUFFIX = {
    ".txt": "terminal",
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
    ".png": "png",
    ".json": "json",
    ".jsonl": "json",
    ".graphml": "graphml",
}
_ONE = ("svg", "png", "graphml")  # hold one record
_EVERY_HEAD = ("html", "json")
_WIDTH = 100  # of a file for people, in characters

Rows = Sequence[Sequence[Explanation]]


def check_output(format: str | None, out: Path | None, head: int | None) -> str:
    """Return the format; refuse what does not go together."""
    refuse_dash(out)
    chosen = format or (
        "terminal" if out is None else _BY_SUFFIX.get(out.suffix.lower())
    )
    if chosen is None:
        raise SettingsError(
            f"--out {out}: its name does not tell the format; say --format "
            f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        )
    if chosen not in FORMATS:
        raise SettingsError(f"--format {chosen}: is one of {', '.join(FORMATS)}")
    if out is not None and out.is_dir():
        raise SettingsError(f"--out {out}: is a folder; name a file in it")
    if chosen == "png" and out is None:
        raise SettingsError("--format png: needs a file, --out FILE")
    if chosen in _EVERY_HEAD and head is not None:
        raise SettingsError(f"--head: {chosen} has every head already; leave it out")
    return chosen


def write(rows: Rows, format: str, out: Path | None, head: int | None) -> None:
    """Write a row for each text, with a record for each model.

    A file is whole or, if something went wrong, as it was before.
    """
    if format in _ONE and [len(row) for row in rows] != [1]:
        models = len(rows[0]) if rows else 1
        raise SettingsError(
            f"--format {format}: is for one text and one model, not for {len(rows)} "
            f"and {models}; html, json and terminal take any number"
        )
    if out is None:
        if format == "terminal":
            _print(rows, results, head)
        else:
            sys.stdout.write(_content(rows, format, head))
            sys.stdout.flush()
        return
    if format == "png":
        rows[0][0].save_png(out, head)
    else:
        write_whole(out, _content(rows, format, head).encode())
    say(f"wrote {out}")


def _content(rows: Rows, format: str, head: int | None) -> str:
    if format == "terminal":
        file = StringIO()
        _print(rows, Console(file=file, width=_WIDTH), head)
        return file.getvalue()
    if format == "html":
        from perron.explain.page import page

        return page(rows)
    if format == "json":
        return "".join(f"{record.to_json()}\n" for row in rows for record in row)
    if format == "graphml":
        from perron.explain.network import to_graphml

        return to_graphml(rows[0][0], head)
    return rows[0][0].to_svg(head)


def _print(rows: Rows, console: Console, head: int | None) -> None:
    from perron.explain.terminal import side_by_side, view

    for place, row in enumerate(rows):
        if place:
            console.print()
        views = [view(record, head) for record in row]
        console.print(side_by_side(views, console.width), soft_wrap=False)
