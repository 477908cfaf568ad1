"""The colors of words and arcs, by day and by night."""

from typing import NamedTuple

STEPS = 12  # shades of a word, from 0
LEVELS = 9  # of an arc, from 0

Color = tuple[int, int, int]


class Palette(NamedTuple):
    """Colors that go together. Text on any shade has a contrast of 4.5 or more."""

    paper: Color
    full: Color  # of a word that weighs three times the mean or more
    ink: Color
    muted: Color
    rim: Color  # of a tile
    arc: Color
    incoming: Color
    outgoing: Color

    def shade(self, step: int) -> Color:
        """Return the color of a word, from ``paper`` to ``full``."""
        return mixed(self.paper, self.full, step / STEPS)


LIGHT = Palette(
    paper=(255, 255, 255),
    full=(226, 112, 38),
    ink=(28, 28, 30),
    muted=(95, 99, 104),
    rim=(224, 222, 218),
    arc=(52, 73, 109),
    incoming=(163, 71, 10),  # both as on the page
    outgoing=(31, 95, 174),
)
DARK = Palette(
    paper=(24, 25, 29),
    full=(168, 70, 12),
    ink=(244, 243, 240),
    muted=(168, 171, 178),
    rim=(62, 63, 68),
    arc=(150, 174, 216),
    incoming=(242, 163, 102),
    outgoing=(141, 184, 238),
)


def strength_of(share: float, count: int) -> float:
    """Return 0 to 1 for what a word weighs: 1/3 at the mean, 1 at three times it."""
    return min(1.0, share * count / 3)


def mixed(first: Color, second: Color, part: float) -> Color:
    """Return a color between two."""
    red, green, blue = (
        round(one + part * (other - one))
        for one, other in zip(first, second, strict=True)
    )
    return red, green, blue


def opacity_of(level: int) -> float:
    """Return how strongly an arc of that level is drawn."""
    return round(0.1 + 0.75 * level / LEVELS, 2)


def thickness_of(level: int) -> float:
    """Return how thick an arc of that level is."""
    return round(0.8 + 1.2 * level / LEVELS, 2)


def css(color: Color) -> str:
    """Return a color as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*color)
