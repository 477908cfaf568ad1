"""What a picture is made of; whoever draws it decides nothing but how."""

from dataclasses import dataclass, field
from typing import Literal

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
    centred: bool = False
    bold: bool = False

    @property
    def right(self) -> float:
        """The right end."""
        return self.x + self.width / (2 if self.centred else 1)


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
        texts: the word and its per cent.
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
