"""One graph of a picture: its words on lines, its arcs above them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perron.explain.colours import STEPS, strength_of
from perron.explain.flow import (
    Flow,
    flows,
    head_of,
    incoming,
    outgoing,
    shares,
    strongest,
)
from perron.explain.picture.arcs import Place, arcs_of, rise
from perron.explain.picture.fonts import fitted, width_of
from perron.explain.picture.shapes import Section, Text, Tile
from perron.explain.records import Graph
from perron.explain.wording import CUT, NO_WORDS, per_cent, printable, story

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
    places, notes = _places(texts, every, graph.cut, column)
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
        texts = [Text(self.word, place.middle, place.y + 17, WORD, word, centred=True)]
        if self.number is not None:
            wide = width_of(self.number, NUMBER)
            y = place.y + 30
            texts.append(Text(self.number, place.middle, y, NUMBER, wide, centred=True))
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
