"""``perron graph``: the word graph of a text."""

import sys
from collections.abc import Sequence
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from perron.cli.console import print_message, results
from perron.cli.options import TextOptions, TextPair, with_options
from perron.errors import SettingsError
from perron.files import atomic_write

if TYPE_CHECKING:
    from perron.cli.io import TextSource
    from perron.explain import Explanation
    from perron.pipeline import Pipeline

    Rows = Sequence[Sequence[Explanation]]  # of each text, by each model

FORMATS = {
    "terminal": (".txt",),
    "html": (".html", ".htm"),
    "svg": (".svg",),
    "png": (".png",),
    "json": (".json", ".jsonl"),
    "graphml": (".graphml",),
}
_ONE = ("svg", "png", "graphml")  # hold one record
_EVERY_HEAD = ("html", "json")
_WIDTH = 100  # of a file for people, in characters


def check_output(format: str | None, out: Path | None, head: int | None) -> str:
    """Return the format; refuse what does not go together."""
    from perron.cli.outputs import output_format

    chosen = output_format(format, out, FORMATS, "terminal")
    if out is not None and out.is_dir():
        raise SettingsError(f"--out {out}: is a folder; name a file in it")
    if chosen == "png" and out is None:
        raise SettingsError("--format png: needs a file, --out FILE")
    if chosen in _EVERY_HEAD and head is not None:
        raise SettingsError(f"--head: {chosen} has every head already; leave it out")
    return chosen


def write(rows: "Rows", format: str, out: Path | None, head: int | None) -> None:
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
        atomic_write(out, _content(rows, format, head).encode())
    print_message(f"wrote {out}")


def _content(rows: "Rows", format: str, head: int | None) -> str:
    if format == "terminal":
        file = StringIO()
        _print(rows, Console(file=file, width=_WIDTH), head)
        return file.getvalue()
    if format == "html":
        from perron.explain.views import html_page

        return html_page(rows)
    if format == "json":
        return "".join(f"{record.to_json()}\n" for row in rows for record in row)
    if format == "graphml":
        from perron.explain.views import to_graphml

        return to_graphml(rows[0][0], head)
    return rows[0][0].to_svg(head)


def _print(rows: "Rows", console: Console, head: int | None) -> None:
    from perron.explain.views import side_by_side, terminal_view

    for place, row in enumerate(rows):
        if place:
            console.print()
        views = [terminal_view(record, head) for record in row]
        console.print(side_by_side(views, console.width), soft_wrap=False)


With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", metavar="MODEL", help="Another model to compare with; repeatable."
    ),
]


@with_options(TextOptions)
def graph(
    options: TextOptions,
    pair: Annotated[
        str | None, typer.Option(help="The second text, for a pair model.")
    ] = None,
    with_: With = None,
    text_pair: TextPair = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of texts to show.")
    ] = 100,
    head: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of one head, from 0. Defaults to the mean of all."
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="terminal, html, svg, png, json or graphml. Defaults to the one of "
            "--out's extension.",
        ),
    ] = None,
) -> None:
    """Show what the words of a text weigh, and the graph that it comes from.

    In the terminal; as a page to explore (html); as a picture (svg, png); as data
    (json, a record a line; graphml, for Gephi and the like). Page, terminal and json
    take several texts, and several models side by side.

    Examples:

        perron graph runs/demo "a gorgeous, witty film"

        perron graph runs/demo "a gorgeous, witty film" --out graph.html

        perron graph runs/a "a gorgeous, witty film" --with runs/b --with runs/c

        perron graph runs/demo --file new.csv --text review --out graphs.html
    """
    from perron.cli.io import TextSource
    from perron.pipeline import pair_mismatch

    chosen = check_output(format, options.out, head)
    models = _load([options.model, *(with_ or ())], options.pretokenized)
    is_pair = models[0].processor.kind == "pair"
    typed = list(options.texts or ())
    if pair is not None:
        if not is_pair:
            fix = "Leave out --pair."
            raise SettingsError(pair_mismatch(False, fix, str(options.model)))
        if len(typed) != 1:
            raise SettingsError("--pair: goes with one text")
        typed.append(pair)
    source = TextSource(options, text_pair, is_pair, typed)
    rows = _explained(source, models, limit, options.skip_invalid)
    write(rows, chosen, options.out, head)


def _load(folders: Sequence[Path], pretokenized: bool) -> list["Pipeline"]:
    from perron.pipeline import load_all

    models = load_all(folders)
    if pretokenized:
        models = [loaded.pretokenized() for loaded in models]
    pairs = [loaded.processor.kind == "pair" for loaded in models]
    if len(set(pairs)) > 1:
        raise SettingsError(
            f"models must all take pairs, or all single texts, got "
            f"{folders[pairs.index(True)]} for pairs and "
            f"{folders[pairs.index(False)]} for single texts."
        )
    return models


def _explained(
    source: "TextSource", models: Sequence["Pipeline"], limit: int, skip_invalid: bool
) -> list[list["Explanation"]]:
    """Return a row for each text, with a record for each model."""
    from perron.cli.io import print_skipped
    from perron.errors import InvalidRows

    bad = InvalidRows(skip_invalid)
    found = list(islice(source.rows(bad), limit + 1))
    print_skipped(bad)
    if not found:
        raise SettingsError("there is no text to show")
    if len(found) > limit:
        print_message(f"only the first {limit} texts; --limit takes more")
    return [
        [model.explain(row.text, row.pair) for model in models] for row in found[:limit]
    ]
