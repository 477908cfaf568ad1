"""``perron graph``: the word graph of a text."""

import sys
from collections.abc import Sequence
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from perron.cli.console import print_message, print_skipped, results
from perron.cli.options import TextOptions, TextPair, with_options
from perron.errors import SettingsError
from perron.files import atomic_write

if TYPE_CHECKING:
    from perron.cli.io import TextSource
    from perron.explain import Explanation
    from perron.pipeline import Pipeline

    Rows = Sequence[Sequence[Explanation]]  # one row per text, one column per model

FORMATS = {
    "terminal": (".txt",),
    "html": (".html", ".htm"),
    "svg": (".svg",),
    "png": (".png",),
    "json": (".json", ".jsonl"),
    "graphml": (".graphml",),
}
_SINGLE_GRAPH_FORMATS = ("svg", "png", "graphml")
_ALL_HEADS_FORMATS = ("html", "json")
_TEXT_FILE_WIDTH = 100  # in characters


def resolve_format(format: str | None, out: Path | None, head: int | None) -> str:
    """Return the output format; reject incompatible options."""
    from perron.cli.outputs import output_format

    resolved = output_format(format, out, FORMATS, "terminal")
    if out is not None and out.is_dir():
        raise SettingsError(f"--out must be a file, got the folder {out}.")
    if resolved == "png" and out is None:
        raise SettingsError("--format png requires a file. Add --out FILE.")
    if resolved in _ALL_HEADS_FORMATS and head is not None:
        raise SettingsError(
            f"--head has no effect on {resolved}, which contains all heads. Remove it."
        )
    return resolved


def write_graphs(rows: "Rows", format: str, out: Path | None, head: int | None) -> None:
    """Write one row per text, with one explanation per model.

    Files are written atomically.
    """
    if format in _SINGLE_GRAPH_FORMATS and [len(row) for row in rows] != [1]:
        models = len(rows[0]) if rows else 1
        raise SettingsError(
            f"--format {format} requires one text and one model, got {len(rows)} texts "
            f"and {models} models. Use html, json or terminal."
        )
    if out is None:
        if format == "terminal":
            _print_graphs(rows, results, head)
        else:
            sys.stdout.write(_render(rows, format, head))
            sys.stdout.flush()
        return
    if format == "png":
        rows[0][0].save_png(out, head)
    else:
        atomic_write(out, _render(rows, format, head).encode())
    print_message(f"Saved to {out}")


def _render(rows: "Rows", format: str, head: int | None) -> str:
    if format == "terminal":
        file = StringIO()
        _print_graphs(rows, Console(file=file, width=_TEXT_FILE_WIDTH), head)
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


def _print_graphs(rows: "Rows", console: Console, head: int | None) -> None:
    from perron.explain.views import side_by_side, terminal_view

    for index, row in enumerate(rows):
        if index:
            console.print()
        views = [terminal_view(record, head) for record in row]
        console.print(side_by_side(views, console.width), soft_wrap=False)


With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="MODEL",
        help="Another model to compare with. Can be repeated.",
    ),
]


@with_options(TextOptions)
def graph(
    options: TextOptions,
    pair: Annotated[
        str | None, typer.Option(help="Second text, for pair models.")
    ] = None,
    with_: With = None,
    text_pair: TextPair = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of texts to show.")
    ] = 100,
    head: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Index of the head to show, from 0. Defaults to the mean over heads.",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Output format: terminal, html, svg, png, json or graphml. By "
            "default, inferred from the extension of --out; terminal without --out.",
        ),
    ] = None,
) -> None:
    """Show the word graph of a text and the weight of each word.

    The graph is printed to the terminal, or written as an interactive page (html), an
    image (svg, png) or data (json with one graph per line; graphml for tools such as
    Gephi). The formats terminal, html and json support several texts and several
    models side by side.

    Examples:

        perron graph runs/demo "a gorgeous, witty film"

        perron graph runs/demo "a gorgeous, witty film" --out graph.html

        perron graph runs/a "a gorgeous, witty film" --with runs/b --with runs/c

        perron graph runs/demo --file new.csv --text review --out graphs.html
    """
    from perron.cli.io import TextSource
    from perron.pipeline import pair_mismatch

    resolved = resolve_format(format, options.out, head)
    models = _load([options.model, *(with_ or ())], options.pretokenized)
    is_pair = models[0].processor.kind == "pair"
    texts = list(options.texts or ())
    if pair is not None:
        if not is_pair:
            fix = "Remove --pair."
            raise SettingsError(pair_mismatch(False, fix, str(options.model)))
        if len(texts) != 1:
            raise SettingsError(f"--pair requires exactly one text, got {len(texts)}.")
        texts.append(pair)
    source = TextSource(options, text_pair, is_pair, texts)
    rows = _explain(source, models, limit, options.skip_invalid)
    write_graphs(rows, resolved, options.out, head)


def _load(folders: Sequence[Path], pretokenized: bool) -> list["Pipeline"]:
    from perron.pipeline import load_all

    models = load_all(folders)
    if pretokenized:
        models = [model.pretokenized() for model in models]
    is_pair = [model.processor.kind == "pair" for model in models]
    if len(set(is_pair)) > 1:
        raise SettingsError(
            "all models must be of the same kind, got "
            f"{folders[is_pair.index(True)]} for pairs and "
            f"{folders[is_pair.index(False)]} for single texts."
        )
    return models


def _explain(
    source: "TextSource", models: Sequence["Pipeline"], limit: int, skip_invalid: bool
) -> list[list["Explanation"]]:
    """Return one row per text, with one explanation per model."""
    from perron.errors import InvalidRows

    invalid = InvalidRows(skip_invalid)
    rows = list(islice(source.rows(invalid), limit + 1))
    print_skipped(invalid.skipped.total())
    if not rows:
        raise SettingsError("the input contains no texts.")
    if len(rows) > limit:
        print_message(f"Showing the first {limit} texts. Use --limit to show more.")
    return [
        [model.explain(row.text, row.pair) for model in models] for row in rows[:limit]
    ]
