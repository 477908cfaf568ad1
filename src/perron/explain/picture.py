"""Shapes in a picture of the graph: tiles with words, and arcs above them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from math import exp
from pathlib import Path
from typing import Literal, NamedTuple
from unicodedata import category, east_asian_width

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font, LoadFlags

from perron.explain.flow import (
    LEVELS,
    NO_WORDS,
    STEPS,
    TRUNCATED,
    Flow,
    color_strength,
    describe_node,
    flow_matrix,
    incoming,
    node_weights,
    outgoing,
    percent,
    printable,
    resolve_head,
    strongest_flows,
)
from perron.explain.records import Graph

FAMILY = "DejaVu Sans"
_UNITS = 1000  # font size at which glyphs are measured


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the width of a line of text, without kerning."""
    return sum(_advance(char, bold) for char in text) * size / _UNITS


def fit_text(text: str, size: float, max_width: float) -> str:
    """Return the text, truncated with "…" if it is wider than `max_width`."""
    if text_width(text, size) <= max_width:
        return text
    left = max_width - text_width("…", size)
    count = 0
    while count < len(text) and (left := left - text_width(text[count], size)) >= 0:
        count += 1
    return f"{text[:count]}…"


@cache
def _advance(char: str, bold: bool) -> float:
    font = _font(bold)
    if font.get_char_index(ord(char)):
        return font.load_char(ord(char), LoadFlags.NO_HINTING).linearHoriAdvance / 65536
    # The glyph comes from a fallback font, or is shown as a box.
    if category(char) in ("Mn", "Me", "Cf"):
        return 0.0
    return _UNITS * (1.0 if east_asian_width(char) in "WF" else 0.6)


@cache
def _font(bold: bool) -> FT2Font:
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    font = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name))
    font.set_size(_UNITS, 72)
    return font


Point = tuple[float, float]

TIP = 6.0  # length of an arrowhead
TIP_WIDTH = 5.0


@dataclass(frozen=True)
class Text:
    """A line of text. ``x`` is its left end or its center, ``y`` its baseline."""

    text: str
    x: float
    y: float
    size: float
    width: float
    role: Literal["ink", "muted"] = "ink"
    centered: bool = False
    bold: bool = False

    @property
    def right(self) -> float:
        """Right end."""
        return self.x + self.width / (2 if self.centered else 1)


@dataclass(frozen=True)
class Arc:
    """A cubic Bézier curve with an arrowhead, which starts at the end of the curve."""

    points: tuple[Point, Point, Point, Point]
    level: int  # strength, from 0 to LEVELS


@dataclass(frozen=True)
class Tile:
    """A word, or the number of a sentence.

    Attributes:
        x: Left edge.
        y: Top edge.
        width: Width of the tile.
        height: Height of the tile.
        shade: Shade, from 0 to STEPS, which grows with the weight. None without
            weights.
        texts: Word and weight.
        description: Weight, sources and targets of the word, as text.
        incoming: Arcs of the strongest incoming flows.
        outgoing: Arcs of the strongest outgoing flows.
    """

    x: float
    y: float
    width: float
    height: float
    shade: int | None
    texts: list[Text]
    description: str
    incoming: list[Arc] = field(default_factory=list)
    outgoing: list[Arc] = field(default_factory=list)

    @property
    def right(self) -> float:
        """Right edge."""
        return self.x + self.width


@dataclass(frozen=True)
class Section:
    """A graph: tiles, arcs of its strongest edges behind them, and texts."""

    name: str
    tiles: list[Tile]
    arcs: list[Arc]
    texts: list[Text]

    @property
    def shapes(self) -> list[Tile | Text]:
        """Tiles and texts."""
        return [*self.tiles, *self.texts]


@dataclass(frozen=True)
class Picture:
    """A complete picture, with a title and a description for screen readers."""

    width: float
    height: float
    title: str
    description: str
    texts: list[Text]
    sections: list[Section]


_MAX_ARC_HEIGHT = 58.0
_BEND = 70.0  # maximum distance from the ends of an arc to its control points
_INSET = (3.0, 8.0)  # arcs to the right start and end outside those to the left


class Box(NamedTuple):
    """Position and size of a tile."""

    line: int
    x: float
    y: float
    width: float
    height: float

    @property
    def center(self) -> float:
        """Horizontal center."""
        return self.x + self.width / 2


def arc_height(source: Box, target: Box) -> float:
    """Return the height of the arc between two tiles above their line."""
    if source.line != target.line:
        return 0.0
    distance = abs(source.center - target.center)
    return 8 + (_MAX_ARC_HEIGHT - 8) * (1 - exp(-distance / 320))


def make_arcs(flows: Sequence[Flow], boxes: Sequence[Box]) -> list[Arc]:
    """Return an arc for each flow, in reverse order.

    Flows are sorted by strength, so the strongest arc is drawn last, on top.
    """
    largest = max((flow.share for flow in flows), default=1.0)
    return [
        Arc(
            _curve(boxes[flow.source], boxes[flow.target]),
            # Squared, because all flows that are drawn are strong.
            round(LEVELS * (flow.share / largest) ** 2),
        )
        for flow in reversed(flows)
    ]


def _curve(source: Box, target: Box) -> tuple[Point, Point, Point, Point]:
    direction = 1 if target.center > source.center else -1
    inset = direction * _INSET[direction < 0]
    start_x, end_x = source.center + inset, target.center - inset
    if source.line == target.line:
        # A cubic curve rises to 3/4 of the height of its control points.
        top = source.y - (arc_height(source, target) - inset * direction) / 0.75
        return (
            (start_x, source.y),
            (start_x, top),
            (end_x, top),
            (end_x, target.y - TIP),
        )
    down = 1 if target.line > source.line else -1
    start_y = source.y + (source.height if down > 0 else 0.0)
    end_y = target.y + (target.height if down < 0 else 0.0) - down * TIP
    bend = down * min(_BEND, abs(end_y - start_y) / 2)
    return (
        (start_x, start_y),
        (start_x, start_y + bend),
        (end_x, end_y - bend),
        (end_x, end_y),
    )


WORD, NUMBER, NOTE = 15.0, 9.0, 11.0  # font sizes
_PADDING = 6.0  # left and right of a word in its tile
_GAP = 6.0  # between tiles
_LEADING = 16.0  # between lines, in addition to the arcs
_MAX_OWN_ARCS = 4  # incoming arcs of a highlighted word, and outgoing arcs
_ARCS_PER_NODE = 2.0  # arcs that are always visible, on average
_MAX_ARCS = 200  # arcs that are always visible; more would not be legible


@dataclass
class Column:
    """Space for the next graph: between left and right, and below y."""

    left: float
    right: float
    y: float


def note(text: str, x: float, y: float, size: float = NOTE) -> Text:
    """Return muted text, for anything except words and weights."""
    return Text(text, x, y, size, text_width(text, size), "muted")


def place_graph(
    name: str,
    graph: Graph,
    head: int | None,
    column: Column,
    numbered: bool = False,
) -> Section:
    """Lay out a graph at the top of the column, and move the column below it.

    Args:
        name: Name of the section.
        graph: Graph to draw.
        head: Head to draw. None for the mean of all heads.
        column: Space for the graph.
        numbered: Whether to show the numbers of the nodes in place of the nodes.
    """
    if not graph.nodes:
        column.y += 44
        return Section(name, [], [], [note(NO_WORDS, column.left, column.y - 24, WORD)])
    numbers = [str(node + 1) for node in range(len(graph.nodes))]
    names = [f"sentence {number}" for number in numbers] if numbered else graph.nodes
    weights = node_weights(graph, head)
    matrix = flow_matrix(graph, head) if graph.has_edges else None
    strongest = []
    if matrix is not None:
        edges = graph.edges(resolve_head(graph, head))
        strongest = strongest_flows(edges, _ARCS_PER_NODE)[:_MAX_ARCS]
    own_flows = [_own_flows(matrix, node) for node in range(len(names))]

    max_width = column.right - column.left - 2 * _PADDING
    labels = [
        _Label(
            fit_text(printable(text), WORD, max_width),
            None if weights is None else percent(weights[node]),
        )
        for node, text in enumerate(numbers if numbered else graph.nodes)
    ]
    all_flows = [*strongest, *(flow for into, out in own_flows for flow in into + out)]
    boxes, notes = _place_labels(labels, all_flows, graph.truncated, column)
    tiles = []
    for node, (label, box) in enumerate(zip(labels, boxes, strict=True)):
        weight = None if weights is None else weights[node]
        into, out = own_flows[node]
        tiles.append(
            Tile(
                *box[1:],
                None if weight is None else _shade(weight, len(names)),
                label.texts(box),
                describe_node(names, node, weight, matrix),
                make_arcs(into, boxes),
                make_arcs(out, boxes),
            )
        )
    return Section(name, tiles, make_arcs(strongest, boxes), notes)


def _own_flows(matrix: np.ndarray | None, node: int) -> tuple[list[Flow], list[Flow]]:
    """Return the strongest flows into and out of a node, except those to itself."""
    if matrix is None:
        return [], []
    count = _MAX_OWN_ARCS + 1  # one of them may be from the node to itself
    into, out = (
        [flow for flow in flows if flow.source != flow.target][:_MAX_OWN_ARCS]
        for flows in (incoming(matrix, node, count), outgoing(matrix, node, count))
    )
    return into, out


def _shade(weight: float, count: int) -> int:
    return round(STEPS * color_strength(weight, count))


@dataclass(frozen=True)
class _Label:
    """The text in a tile: a word and its weight."""

    word: str
    weight: str | None

    @property
    def width(self) -> float:
        weight = 0.0 if self.weight is None else text_width(self.weight, NUMBER)
        return max(text_width(self.word, WORD), weight) + 2 * _PADDING

    @property
    def height(self) -> float:
        return 24.0 if self.weight is None else 36.0

    def texts(self, box: Box) -> list[Text]:
        width = text_width(self.word, WORD)
        texts = [Text(self.word, box.center, box.y + 17, WORD, width, centered=True)]
        if self.weight is not None:
            width = text_width(self.weight, NUMBER)
            texts.append(
                Text(self.weight, box.center, box.y + 30, NUMBER, width, centered=True)
            )
        return texts


def _place_labels(
    labels: Sequence[_Label], flows: Sequence[Flow], truncated: bool, column: Column
) -> tuple[list[Box], list[Text]]:
    """Break the labels into lines, with space for the arcs above each line."""
    height = labels[0].height
    flat, x, line = [], column.left, 0
    for label in labels:
        if x > column.left and x + label.width > column.right:
            x, line = column.left, line + 1
        flat.append(Box(line, x, 0.0, label.width, height))
        x += label.width + _GAP
    if truncated and x + text_width(TRUNCATED, NOTE) > column.right:
        x, line = column.left, line + 1
    headroom = [0.0] * (line + 1)
    for flow in flows:
        source, target = flat[flow.source], flat[flow.target]
        headroom[source.line] = max(headroom[source.line], arc_height(source, target))
    tops = []
    for space in headroom:
        column.y += space
        tops.append(column.y)
        column.y += height + _LEADING
    column.y += 4
    boxes = [box._replace(y=tops[box.line]) for box in flat]
    return boxes, [note(TRUNCATED, x, tops[line] + 17)] if truncated else []
