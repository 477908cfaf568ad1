"""Curves from word to word: over a line, or from one line to another."""

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

from perron.explain.colours import LEVELS
from perron.explain.flow import Flow
from perron.explain.picture.shapes import TIP, Arc, Point

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
