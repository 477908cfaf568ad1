"""Views of an explanation: terminal, networkx, GraphML, and a page in one file."""

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perron.explain.colors import LIGHT, mixed, strength_of
from perron.explain.flow import (
    CUT,
    NO_WORDS,
    check_head,
    flows,
    head_of,
    made_of,
    per_cent,
    printable,
    shares,
    strongest,
)
from perron.explain.records import Explanation, Graph

if TYPE_CHECKING:
    import networkx

_WHITE = (255, 255, 255)
_CLASSES = 8  # whose probabilities are shown
_FLOWS = 6  # that are listed
_BAR = 16  # characters
_LONGEST = 20  # characters of a word in that list
_NARROWEST = 36  # column that views are put into side by side


def shaded(graph: Graph, head: int | None = None) -> Text:
    """Return the words, the heavier the stronger their color, each with its percent.

    Without color the numbers say the same.
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
    if graph.truncated:
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
    if record.sentences.truncated:
        table.add_row("", "", Text(CUT, "dim"))
    return table


def _flows(
    graph: Graph, head: int | None, numbered: bool = False
) -> list[RenderableType]:
    """Return a list of the strongest flows, in percent of all importance."""
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


def to_networkx(record: Explanation, head: int | None = None) -> "networkx.DiGraph":
    """Return all words, and sentences, as one directed graph.

    A node is named by its part and its place in it: ``"0.3"`` is the fourth word of the
    text, or of the first text of a pair, or of the first sentence of a document;
    ``"s2"`` is a document's third sentence. It has ``text``, ``start`` and ``end`` in
    the text, ``part``, ``level`` ("word" or "sentence") and ``weight``, unless the
    aggregator has none.

    An edge points the way that importance goes, from j to i. It has ``weight`` A_ij,
    ``flow`` A_ij α_j and, for shortest paths, ``distance`` 1 / A_ij. For one head,
    or a model with one, the nodes' weights are the stationary distribution of a walk
    along the edges. An edge from a word to itself is one too.

    Args:
        record: what to turn into a graph.
        head: which weights and edges; the mean of all if not given.
    """
    check_head(record, head)
    import networkx  # only this view needs it

    network = networkx.DiGraph(model=record.model.name, label=record.label)
    for part, graph in enumerate(record.words):
        names = [f"{part}.{place}" for place in range(len(graph.nodes))]
        _add(network, graph, head, names, [part] * len(names), "word")
    if record.sentences is not None:
        places = list(range(len(record.sentences.nodes)))
        names = [f"s{place}" for place in places]
        _add(network, record.sentences, head, names, places, "sentence")
    return network


def to_graphml(record: Explanation, head: int | None = None) -> str:
    """Return the same graph as GraphML, for Gephi, yEd or Cytoscape.

    XML cannot hold every character: � stands for those.
    """
    network = to_networkx(record, head)
    for _, attributes in network.nodes(data=True):
        attributes["text"] = printable(attributes["text"])
    for name, value in network.graph.items():
        network.graph[name] = printable(value)
    import networkx

    lines = networkx.generate_graphml(network)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + "\n".join(lines) + "\n"


def _add(
    network: "networkx.DiGraph",
    graph: Graph,
    head: int | None,
    names: list[str],
    parts: list[int],
    level: str,
) -> None:
    weights = shares(graph, head)
    for place, name in enumerate(names):
        start, end = graph.spans[place]
        network.add_node(
            name,
            text=graph.nodes[place],
            start=start,
            end=end,
            part=parts[place],
            level=level,
        )
        if weights is not None:
            network.nodes[name]["weight"] = weights[place]
    if not graph.has_edges:
        return
    edges = graph.edges(head_of(graph, head)).tolist()
    moved = flows(graph, head).tolist()
    for target, row in zip(names, range(len(names)), strict=True):
        for source, weight, flow in zip(names, edges[row], moved[row], strict=True):
            if weight > 0:
                network.add_edge(
                    source, target, weight=weight, flow=flow, distance=1 / weight
                )


# The modules of the page, each after those that it imports.
_MODULES = (
    "elements",
    "numbers",
    "arcs",
    "details",
    "words",
    "threshold",
    "picture",
    "graph",
    "record",
    "page",
)
_IMPORT = re.compile(r"^import\s[^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<noscript><p>This page draws with JavaScript, which is switched off here.</p></noscript>
</main>
<script type="application/json" id="records">{records}</script>
<script type="module">
{script}</script>
</body>
</html>
"""


def page(rows: Sequence[Sequence[Explanation]], title: str = "Word graph") -> str:
    """Return a page with a row for each text and in it a record for each model."""
    inner = ",".join(
        "[" + ",".join(record.to_json() for record in row) + "]" for row in rows
    )
    return _PAGE.format(
        title=escape(title),
        style=_read("graph.css") + _read("page.css"),
        # "</script>" in a text would end the script.
        records="[" + inner.replace("<", "\\u003c") + "]",
        script=_script(),
    )


def framed(record: Explanation) -> str:
    """Return the page in a frame, for notebooks: its style does not touch theirs."""
    lines = 1 + max((len(graph.nodes) for graph in record.words), default=0) // 12
    height = min(900, 420 + 75 * lines * len(record.words[:2]))
    return (
        f'<iframe srcdoc="{escape(page([[record]]))}" title="Word graph" '
        'sandbox="allow-scripts allow-downloads" style="width: 100%; '
        f'height: {height}px; border: 0; resize: vertical"></iframe>'
    )


@cache
def _script() -> str:
    """Join the modules into one, as a page in one file cannot import another."""
    joined = "".join(_read(f"{name}.js") for name in _MODULES)
    return _EXPORT.sub("", _IMPORT.sub("", joined))


@cache
def _read(name: str) -> str:
    return (files("perron.explain") / "static" / name).read_text(encoding="utf-8")
