"""Shapes of a picture of the graph: words on lines, arcs above them."""

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

from perron.explain.colors import LEVELS, STEPS, strength_of
from perron.explain.flow import (
    CUT,
    NO_WORDS,
    Flow,
    flows,
    head_of,
    incoming,
    outgoing,
    per_cent,
    printable,
    shares,
    story,
    strongest,
)
from perron.explain.records import Graph

FAMILY = "DejaVu Sans"
_UNITS = 1000  # glyphs are measured at this size


def width_of(text: str, size: float, bold: bool = False) -> float:
    """Return the width of a line, without kerning."""
    return sum(_advance(char, bold) for char in text) * size / _UNITS


def fitted(text: str, size: float, room: float) -> str:
    """Return the text, or as much of its beginning as there is room for, then "…"."""
    if width_of(text, size) <= room:
        return text
    left = room - width_of("…", size)
    count = 0
    while count < len(text) and (left := left - width_of(text[count], size)) >= 0:
        count += 1
    return f"{text[:count]}…"


@cache
def _advance(char: str, bold: bool) -> float:
    font = _font(bold)
    if font.get_char_index(ord(char)):
        return font.load_char(ord(char), LoadFlags.NO_HINTING).linearHoriAdvance / 65536
    # Another font will have it, or a box stands for it.
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
    """A line of text; ``x`` is its left end or its middle, ``y`` its baseline."""

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
        """The right end."""
        return self.x + self.width / (2 if self.centered else 1)


@dataclass(frozen=True)
class Arc:
    """A cubic Bézier curve, and an arrowhead that begins where it ends."""

    points: tuple[Point, Point, Point, Point]
    level: int  # of strength


@dataclass(frozen=True)
class Tile:
    """A word, or the number of a sentence.

    Attributes:
        x: left.
        y: top.
        width: of the tile.
        height: of the tile.
        shade: by its weight; None without weights.
        texts: the word and its percent.
        story: what there is to know of it.
        incoming: arcs from where most of its importance comes.
        outgoing: arcs to where most of it goes.
    """

    x: float
    y: float
    width: float
    height: float
    shade: int | None
    texts: list[Text]
    story: str
    incoming: list[Arc] = field(default_factory=list)
    outgoing: list[Arc] = field(default_factory=list)

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.width


@dataclass(frozen=True)
class Section:
    """A graph: tiles, the strongest arcs behind them, and text around them."""

    name: str
    tiles: list[Tile]
    arcs: list[Arc]
    texts: list[Text]

    @property
    def shapes(self) -> list[Tile | Text]:
        """Tiles and texts together."""
        return [*self.tiles, *self.texts]


@dataclass(frozen=True)
class Picture:
    """All of it, and what it shows in words."""

    width: float
    height: float
    title: str
    description: str
    texts: list[Text]
    sections: list[Section]


_HIGHEST = 58.0
_BEND = 70.0  # how far an arc between lines goes straight on, at most
_INSET = (3.0, 8.0)  # arcs to the right start and end outside those to the left


class Place(NamedTuple):
    """Where a tile is."""

    line: int
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The middle between left and right."""
        return self.x + self.width / 2


def rise(source: Place, target: Place) -> float:
    """Return how far an arc between two tiles rises above their line."""
    if source.line != target.line:
        return 0.0
    return 8 + (_HIGHEST - 8) * (1 - exp(-abs(source.middle - target.middle) / 320))


def arcs_of(flows: Sequence[Flow], places: Sequence[Place]) -> list[Arc]:
    """Return an arc for each flow, the weakest first: the strongest is drawn on top."""
    most = max((flow.share for flow in flows), default=1.0)
    return [
        Arc(
            _curve(places[flow.source], places[flow.target]),
            # Squared, as those that are shown are all among the strongest.
            round(LEVELS * (flow.share / most) ** 2),
        )
        for flow in reversed(flows)
    ]


def _curve(source: Place, target: Place) -> tuple[Point, Point, Point, Point]:
    towards = 1 if target.middle > source.middle else -1
    inset = towards * _INSET[towards < 0]
    begin, end = source.middle + inset, target.middle - inset
    if source.line == target.line:
        top = source.y - (rise(source, target) - inset * towards) / 0.75
        return (begin, source.y), (begin, top), (end, top), (end, target.y - TIP)
    down = 1 if target.line > source.line else -1
    first = source.y + (source.height if down > 0 else 0.0)
    last = target.y + (target.height if down < 0 else 0.0) - down * TIP
    bend = down * min(_BEND, abs(last - first) / 2)
    return (begin, first), (begin, first + bend), (end, last - bend), (end, last)


WORD, NUMBER, NOTE = 15.0, 9.0, 11.0  # sizes of the font
_PADDING = 6.0  # left and right of a word in its tile
_GAP = 6.0  # between tiles
_LEADING = 16.0  # between lines, besides the arcs
_OWN = 4  # arcs that come to a word when it is pointed at, and as many that leave it
_PER_NODE = 2.0  # arcs that are always there, on average
_MOST = 200  # of them; of more none can be followed


@dataclass
class Column:
    """The room that is left: between left and right, from y on."""

    left: float
    right: float
    y: float


def note(text: str, x: float, y: float, size: float = NOTE) -> Text:
    """Return text beside the words."""
    return Text(text, x, y, size, width_of(text, size), "muted")


def place_graph(
    name: str,
    graph: Graph,
    head: int | None,
    column: Column,
    numbered: bool = False,
) -> Section:
    """Place the nodes of a graph, or their numbers, and go down the column by that."""
    if not graph.nodes:
        column.y += 44
        return Section(name, [], [], [note(NO_WORDS, column.left, column.y - 24, WORD)])
    numbers = [str(place + 1) for place in range(len(graph.nodes))]
    names = [f"sentence {number}" for number in numbers] if numbered else graph.nodes
    weights = shares(graph, head)
    moved = flows(graph, head) if graph.has_edges else None
    most = []
    if moved is not None:
        most = strongest(graph.edges(head_of(graph, head)), _PER_NODE)[:_MOST]
    own = [_own(moved, node) for node in range(len(names))]

    room = column.right - column.left - 2 * _PADDING
    texts = [_Label.of(text, room) for text in (numbers if numbered else graph.nodes)]
    if weights is not None:
        texts = [
            text.with_number(per_cent(share))
            for text, share in zip(texts, weights, strict=True)
        ]
    every = [*most, *(flow for both in own for one in both for flow in one)]
    places, notes = _places(texts, every, graph.truncated, column)
    tiles = []
    for node, (label, place) in enumerate(zip(texts, places, strict=True)):
        share = None if weights is None else weights[node]
        come, go = own[node]
        tiles.append(
            Tile(
                *place[1:],
                None if share is None else _shade(share, len(names)),
                label.texts(place),
                story(names, node, share, moved),
                arcs_of(come, places),
                arcs_of(go, places),
            )
        )
    return Section(name, tiles, arcs_of(most, places), notes)


def _own(moved: np.ndarray | None, node: int) -> tuple[list[Flow], list[Flow]]:
    """Return the strongest flows to and from a node, but for those to itself."""
    if moved is None:
        return [], []
    both = incoming(moved, node, _OWN + 1), outgoing(moved, node, _OWN + 1)
    come, go = (
        [flow for flow in flows if flow.source != flow.target][:_OWN] for flows in both
    )
    return come, go


def _shade(share: float, count: int) -> int:
    return round(STEPS * strength_of(share, count))


@dataclass(frozen=True)
class _Label:
    """What stands in a tile."""

    word: str
    number: str | None = None

    @classmethod
    def of(cls, text: str, room: float) -> "_Label":
        return cls(fitted(printable(text), WORD, room))

    def with_number(self, number: str) -> "_Label":
        return _Label(self.word, number)

    @property
    def width(self) -> float:
        number = 0.0 if self.number is None else width_of(self.number, NUMBER)
        return max(width_of(self.word, WORD), number) + 2 * _PADDING

    @property
    def height(self) -> float:
        return 24.0 if self.number is None else 36.0

    def texts(self, place: Place) -> list[Text]:
        word = width_of(self.word, WORD)
        texts = [Text(self.word, place.middle, place.y + 17, WORD, word, centered=True)]
        if self.number is not None:
            wide = width_of(self.number, NUMBER)
            y = place.y + 30
            texts.append(
                Text(self.number, place.middle, y, NUMBER, wide, centered=True)
            )
        return texts


def _places(
    labels: Sequence[_Label], flows: Sequence[Flow], cut: bool, column: Column
) -> tuple[list[Place], list[Text]]:
    """Break the labels into lines, and leave room above each for its arcs."""
    height = labels[0].height
    flat, x, line = [], column.left, 0
    for label in labels:
        if x > column.left and x + label.width > column.right:
            x, line = column.left, line + 1
        flat.append(Place(line, x, 0.0, label.width, height))
        x += label.width + _GAP
    wide = width_of(CUT, NOTE)
    if cut and x + wide > column.right:
        x, line = column.left, line + 1
    above = [0.0] * (line + 1)
    for flow in flows:
        source, target = flat[flow.source], flat[flow.target]
        above[source.line] = max(above[source.line], rise(source, target))
    tops = []
    for needed in above:
        column.y += needed
        tops.append(column.y)
        column.y += height + _LEADING
    column.y += 4
    places = [place._replace(y=tops[place.line]) for place in flat]
    return places, [note(CUT, x, tops[line] + 17)] if cut else []
