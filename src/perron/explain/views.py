"""Views of an explanation: terminal, networkx, GraphML and HTML."""

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

from perron.explain.flow import (
    LIGHT,
    NO_WORDS,
    TRUNCATED,
    check_head,
    color_strength,
    flow_matrix,
    mix,
    model_text,
    node_weights,
    percent,
    printable,
    resolve_head,
    strongest_flows,
)
from perron.explain.records import Explanation, Graph

if TYPE_CHECKING:
    import networkx

_WHITE = (255, 255, 255)
_MAX_CLASSES = 8  # classes listed with their probabilities
_MAX_FLOWS = 6  # flows listed
_BAR_WIDTH = 16  # characters
_MAX_NAME = 20  # characters of a word in the list of flows
_MIN_COLUMN = 36  # characters of a column when views are side by side


def shaded_words(graph: Graph, head: int | None = None) -> Text:
    """Return the words, shaded by weight, each followed by its weight in percent.

    The text is readable without color.

    Args:
        graph: Graph to show.
        head: Head to show. Defaults to the mean of all heads.
    """
    text = Text()
    weights = node_weights(graph, head)
    for node, word in enumerate(graph.nodes):
        weight = 0.0 if weights is None else weights[node]
        strength = color_strength(weight, len(graph.nodes))
        red, green, blue = mix(_WHITE, LIGHT.full, strength)
        text.append(f"{printable(word)} ", f"black on rgb({red},{green},{blue})")
        if weights is not None:
            text.append(f"{100 * weight:.0f} ", "dim")
    if graph.truncated:
        text.append(TRUNCATED, "dim")
    return text


def terminal_view(record: Explanation, head: int | None = None) -> Group:
    """Return a record for the terminal: prediction, words and strongest flows.

    Args:
        record: Record to show.
        head: Head to show. Defaults to the mean of all heads.
    """
    check_head(record, head)
    title = Text(printable(record.label), "bold")
    title.append(f"  {model_text(record, head)}", "not bold dim")
    parts: list[RenderableType] = [title, _probabilities(record), Text()]
    if record.sentences is not None:
        parts.append(_document(record, head))
        parts += _flows(record.sentences, head, numbered=True)
        return Group(*parts)
    for index, graph in enumerate(record.words):
        if record.pair is not None:
            parts += [Text()] if index else []
            parts.append(Text(("first text", "second text")[index], "dim"))
        parts.append(_words(graph, head))
        parts += _flows(graph, head)
    return Group(*parts)


def side_by_side(views: Sequence[RenderableType], width: int) -> RenderableType:
    """Return the views in columns, or stacked if the columns would be too narrow.

    Args:
        views: Views to combine.
        width: Width of the terminal, in characters.
    """
    if len(views) == 1:
        return views[0]
    if width // len(views) < _MIN_COLUMN:
        stacked = [part for view in views for part in (view, Text())]
        return Group(*stacked[:-1])
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
    color = "rgb({},{},{})".format(*LIGHT.full)
    ranked = sorted(record.probabilities.items(), key=lambda item: -item[1])
    for label, probability in ranked[:_MAX_CLASSES]:
        bar = Text("█" * round(_BAR_WIDTH * probability), color)
        table.add_row(Text(f"  {printable(label)}"), f"{100 * probability:.1f} %", bar)
    if others := ranked[_MAX_CLASSES:]:
        total = sum(probability for _, probability in others)
        table.add_row(Text(f"  {len(others)} others"), f"{100 * total:.1f} %")
    return table


def _words(graph: Graph, head: int | None) -> Text:
    return shaded_words(graph, head) if graph.nodes else Text(NO_WORDS, "dim")


def _document(record: Explanation, head: int | None) -> RenderableType:
    """Return one row per sentence: its number, its weight and its words."""
    assert record.sentences is not None
    if not record.words:
        return Text(NO_WORDS, "dim")
    weights = node_weights(record.sentences, head)
    table = Table.grid(padding=(0, 1))
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    for index, graph in enumerate(record.words):
        weight = "" if weights is None else percent(weights[index])
        table.add_row(str(index + 1), Text(weight, "bold"), _words(graph, head))
    if record.sentences.truncated:
        table.add_row("", "", Text(TRUNCATED, "dim"))
    return table


def _flows(
    graph: Graph, head: int | None, numbered: bool = False
) -> list[RenderableType]:
    """Return a list of the strongest flows, in percent of the total importance."""
    if not graph.has_edges or len(graph.nodes) < 2:
        return []
    names = [
        str(index + 1) if numbered else _shorten(printable(node))
        for index, node in enumerate(graph.nodes)
    ]
    items = [
        Text(f"  {names[flow.source]} → {names[flow.target]} {percent(flow.share)}")
        for flow in strongest_flows(flow_matrix(graph, head))[:_MAX_FLOWS]
    ]
    return [Text("strongest flows of importance:", "dim"), Columns(items)]


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def to_networkx(record: Explanation, head: int | None = None) -> "networkx.DiGraph":
    """Return all graphs of a record as one directed networkx graph.

    The name of a node consists of the number of its part and its index in that part.
    ``"0.3"`` is the fourth word of the text, of the first text of a pair, or of the
    first sentence of a document. ``"s2"`` is the third sentence of a document. Nodes
    have the attributes ``text``, ``start`` and ``end`` (character offsets), ``part``,
    ``level`` ("word" or "sentence") and, if the aggregator computes weights,
    ``weight``.

    Edges point from j to i, in the direction of the flow of importance, and include
    edges from a word to itself. They have the attributes ``weight`` (A_ij), ``flow``
    (A_ij α_j) and, for shortest paths, ``distance`` (1 / A_ij). For a single head, the
    weights of the nodes are the stationary distribution of a random walk along the
    edges.

    Args:
        record: Record to convert.
        head: Head to use. Defaults to the mean of all heads.
    """
    check_head(record, head)
    import networkx  # optional, and not needed by the other views

    network = networkx.DiGraph(model=record.model.name, label=record.label)
    for part, graph in enumerate(record.words):
        names = [f"{part}.{node}" for node in range(len(graph.nodes))]
        _add_graph(network, graph, head, names, [part] * len(names), "word")
    if record.sentences is not None:
        parts = list(range(len(record.sentences.nodes)))
        names = [f"s{part}" for part in parts]
        _add_graph(network, record.sentences, head, names, parts, "sentence")
    return network


def to_graphml(record: Explanation, head: int | None = None) -> str:
    """Return the graph of `to_networkx` as GraphML, for Gephi, yEd or Cytoscape.

    Characters that XML does not allow are replaced by �.

    Args:
        record: Record to convert.
        head: Head to use. Defaults to the mean of all heads.
    """
    network = to_networkx(record, head)
    for _, attributes in network.nodes(data=True):
        attributes["text"] = printable(attributes["text"])
    for name, value in network.graph.items():
        network.graph[name] = printable(value)
    import networkx

    lines = networkx.generate_graphml(network)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + "\n".join(lines) + "\n"


def _add_graph(
    network: "networkx.DiGraph",
    graph: Graph,
    head: int | None,
    names: list[str],
    parts: list[int],
    level: str,
) -> None:
    weights = node_weights(graph, head)
    for node, name in enumerate(names):
        start, end = graph.spans[node]
        network.add_node(
            name,
            text=graph.nodes[node],
            start=start,
            end=end,
            part=parts[node],
            level=level,
        )
        if weights is not None:
            network.nodes[name]["weight"] = weights[node]
    if not graph.has_edges:
        return
    edges = graph.edges(resolve_head(graph, head)).tolist()
    flows = flow_matrix(graph, head).tolist()
    for row, target in enumerate(names):
        for source, weight, flow in zip(names, edges[row], flows[row], strict=True):
            if weight > 0:
                network.add_edge(
                    source, target, weight=weight, flow=flow, distance=1 / weight
                )


# JavaScript modules of the page, each after the modules it imports.
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
<noscript><p>This page requires JavaScript, which is turned off.</p></noscript>
</main>
<script type="application/json" id="records">{records}</script>
<script type="module">
{script}</script>
</body>
</html>
"""


def html_page(rows: Sequence[Sequence[Explanation]], title: str = "Word graph") -> str:
    """Return an interactive page that shows records, in a single file.

    Args:
        rows: Records to show: one row per text, with one record per model.
        title: Title of the page.
    """
    records = ",".join(
        "[" + ",".join(record.to_json() for record in row) + "]" for row in rows
    )
    return _PAGE.format(
        title=escape(title),
        style=_read("graph.css") + _read("page.css"),
        # Escaped, because "</script>" in a text would end the element.
        records="[" + records.replace("<", "\\u003c") + "]",
        script=_script(),
    )


def html_frame(record: Explanation) -> str:
    """Return the page in an iframe, which isolates its styles from the notebook."""
    lines = 1 + max((len(graph.nodes) for graph in record.words), default=0) // 12
    height = min(900, 420 + 75 * lines * len(record.words[:2]))
    return (
        f'<iframe srcdoc="{escape(html_page([[record]]))}" title="Word graph" '
        'sandbox="allow-scripts allow-downloads" style="width: 100%; '
        f'height: {height}px; border: 0; resize: vertical"></iframe>'
    )


@cache
def _script() -> str:
    """Bundle the modules into one script, because a single file cannot import them."""
    bundle = "".join(_read(f"{name}.js") for name in _MODULES)
    return _EXPORT.sub("", _IMPORT.sub("", bundle))


@cache
def _read(name: str) -> str:
    return (files("perron.explain") / "static" / name).read_text(encoding="utf-8")
