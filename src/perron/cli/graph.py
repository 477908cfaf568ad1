"""``perron graph``: the word graph, to look at."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perron.cli import options
from perron.cli.console import say
from perron.cli.predict import File, Out, Texts
from perron.errors import SettingsError

if TYPE_CHECKING:
    from perron.cli.inputs import Source
    from perron.explain import Explanation
    from perron.pipeline import Pipeline

With = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="MODEL", help="Another model beside; repeatable."),
]


def graph(
    model: options.Model,
    texts: Texts = None,
    pair: Annotated[
        str | None, typer.Option(help="The second text, for a pair model.")
    ] = None,
    with_: With = None,
    file: File = None,
    text: options.Text = None,
    text_pair: options.TextPair = None,
    data_format: options.DataFormat = None,
    tokenised: options.Tokenised = False,
    limit: Annotated[
        int, typer.Option(min=1, help="Show so many texts; say if there are more.")
    ] = 100,
    head: Annotated[
        int | None,
        typer.Option(min=0, help="One head, from 0, instead of the mean of all."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="terminal, html, svg, png, json or graphml; what --out's name tells "
            "if not given.",
        ),
    ] = None,
    out: Out = None,
    skip_bad: options.SkipBad = False,
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
    from perron.cli.graph_outputs import check_output, write
    from perron.cli.inputs import Source
    from perron.cli.stream import as_format

    chosen = check_output(format, out, head)
    models = _load([model, *(with_ or ())], tokenised)
    is_pair = models[0].word_ids.kind == "pair"
    typed = list(texts or ())
    if pair is not None:
        if not is_pair:
            raise SettingsError(f"--pair: {model} is for single texts")
        if len(typed) != 1:
            raise SettingsError("--pair: goes with one text")
        typed.append(pair)
    source = Source(typed, file, text, text_pair, is_pair, as_format(data_format))
    rows = _explained(source, models, limit, skip_bad)
    write(rows, chosen, out, head)


def _load(folders: Sequence[Path], tokenised: bool) -> list["Pipeline"]:
    from perron.cli.stream import reading
    from perron.pipeline import load_all

    models = [reading(loaded, tokenised) for loaded in load_all(folders)]
    pairs = [loaded.word_ids.kind == "pair" for loaded in models]
    if len(set(pairs)) > 1:
        raise SettingsError(
            f"{folders[pairs.index(True)]} is for pairs, but "
            f"{folders[pairs.index(False)]} is for single texts: no text is for both"
        )
    return models


def _explained(
    source: "Source", models: Sequence["Pipeline"], limit: int, skip_bad: bool
) -> list[list["Explanation"]]:
    """Return a row for each text, with a record for each model."""
    from perron.cli.stream import say_skipped
    from perron.data.readers.rows import BadRows

    bad = BadRows(skip_bad)
    found = list(islice(source.rows(bad), limit + 1))
    say_skipped(bad)
    if not found:
        raise SettingsError("there is no text to show")
    if len(found) > limit:
        say(f"only the first {limit} texts; --limit takes more")
    return [
        [model.explain(text, pair if source.is_pair else None) for model in models]
        for text, pair in found[:limit]
    ]
