"""What a model saw in a text, for a terminal: words shaded by what they weigh."""

from collections.abc import Sequence

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perron.explain.colours import LIGHT, mixed, strength_of
from perron.explain.flow import (
    CUT,
    NO_WORDS,
    check_head,
    flows,
    made_of,
    per_cent,
    printable,
    shares,
    strongest,
)
from perron.explain.records import Explanation, Graph

_WHITE = (255, 255, 255)
_CLASSES = 8  # whose probabilities are shown
_FLOWS = 6  # that are listed
_BAR = 16  # characters
_LONGEST = 20  # characters of a word in that list
_NARROWEST = 36  # column that views are put into side by side


def shaded(graph: Graph, head: int | None = None) -> Text:
    """Return the words, the heavier the stronger their colour, each with its per cent.

    Without colour the numbers say the same.
    """
    text = Text()
    weights = shares(graph, head)
    for place, word in enumerate(graph.nodes):
        share = 0.0 if weights is None else weights[place]
        strength = strength_of(share, len(graph.nodes))
        red, green, blue = mixed(_WHITE, LIGHT.full, strength)
        text.append(f"{printable(word)} ", f"black on rgb({red},{green},{blue})")
        if weights is not None:
            text.append(f"{100 * share:.0f} ", "dim")
    if graph.cut:
        text.append(CUT, "dim")
    return text


def view(record: Explanation, head: int | None = None) -> Group:
    """Return all of a record: the prediction, the words and the strongest flows.

    Args:
        record: what to show.
        head: which weights and edges; the mean of all if not given.
    """
    check_head(record, head)
    title = Text(printable(record.label), "bold")
    title.append(f"  {made_of(record, head)}", "not bold dim")
    parts: list[RenderableType] = [title, _probabilities(record), Text()]
    if record.sentences is not None:
        parts.append(_document(record, head))
        parts += _flows(record.sentences, head, numbered=True)
        return Group(*parts)
    for place, graph in enumerate(record.words):
        if record.pair is not None:
            parts += [Text()] if place else []
            parts.append(Text(("first text", "second text")[place], "dim"))
        parts.append(_words(graph, head))
        parts += _flows(graph, head)
    return Group(*parts)


def side_by_side(views: Sequence[RenderableType], width: int) -> RenderableType:
    """Return views in columns, or one below the other if that would be too narrow."""
    if len(views) == 1:
        return views[0]
    if width // len(views) < _NARROWEST:
        apart = [part for view in views for part in (view, Text())]
        return Group(*apart[:-1])
    table = Table.grid(padding=(0, 3), expand=True)
    for _ in views:
        table.add_column(ratio=1)
    table.add_row(*views)
    return table


def _probabilities(record: Explanation) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(max_width=30, overflow="ellipsis", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="crop", no_wrap=True)
    shown = sorted(record.probabilities.items(), key=lambda item: -item[1])
    for label, share in shown[:_CLASSES]:
        bar = Text("█" * round(_BAR * share), "rgb({},{},{})".format(*LIGHT.full))
        table.add_row(Text(f"  {printable(label)}"), f"{100 * share:.1f} %", bar)
    if left := shown[_CLASSES:]:
        rest = sum(share for _, share in left)
        table.add_row(Text(f"  {len(left)} others"), f"{100 * rest:.1f} %")
    return table


def _words(graph: Graph, head: int | None) -> Text:
    return shaded(graph, head) if graph.nodes else Text(NO_WORDS, "dim")


def _document(record: Explanation, head: int | None) -> RenderableType:
    """Return the words of each sentence behind what the sentence weighs."""
    assert record.sentences is not None
    if not record.words:
        return Text(NO_WORDS, "dim")
    weights = shares(record.sentences, head)
    table = Table.grid(padding=(0, 1))
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    for place, graph in enumerate(record.words):
        share = "" if weights is None else per_cent(weights[place])
        table.add_row(str(place + 1), Text(share, "bold"), _words(graph, head))
    if record.sentences.cut:
        table.add_row("", "", Text(CUT, "dim"))
    return table


def _flows(
    graph: Graph, head: int | None, numbered: bool = False
) -> list[RenderableType]:
    """Return a list of the strongest flows, in per cent of all importance."""
    if not graph.has_edges or len(graph.nodes) < 2:
        return []
    names = [
        str(place + 1) if numbered else printable(node)
        for place, node in enumerate(graph.nodes)
    ]
    told = []
    for flow in strongest(flows(graph, head))[:_FLOWS]:
        ends = [_short(names[flow.source]), _short(names[flow.target])]
        told.append(Text(f"  {' → '.join(ends)} {per_cent(flow.share)}"))
    return [Text("strongest flows of importance:", "dim"), Columns(told)]


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
