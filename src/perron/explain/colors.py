"""Colors of words and arcs, in light and dark themes."""

from typing import NamedTuple

STEPS = 12  # the shade of a word is from 0 to STEPS
LEVELS = 9  # the level of an arc is from 0 to LEVELS

Color = tuple[int, int, int]


class Palette(NamedTuple):
    """Colors of a theme. Text on any shade has a contrast ratio of at least 4.5."""

    paper: Color  # background
    full: Color  # words of at least three times the mean weight
    ink: Color  # text
    muted: Color  # secondary text
    border: Color  # border of a tile
    arc: Color
    incoming: Color
    outgoing: Color

    def shade(self, step: int) -> Color:
        """Return the color of a word, from ``paper`` to ``full``."""
        return mix(self.paper, self.full, step / STEPS)


LIGHT = Palette(
    paper=(255, 255, 255),
    full=(226, 112, 38),
    ink=(28, 28, 30),
    muted=(95, 99, 104),
    border=(224, 222, 218),
    arc=(52, 73, 109),
    incoming=(163, 71, 10),  # this and outgoing are the same in graph.css
    outgoing=(31, 95, 174),
)
DARK = Palette(
    paper=(24, 25, 29),
    full=(168, 70, 12),
    ink=(244, 243, 240),
    muted=(168, 171, 178),
    border=(62, 63, 68),
    arc=(150, 174, 216),
    incoming=(242, 163, 102),
    outgoing=(141, 184, 238),
)


def color_strength(weight: float, count: int) -> float:
    """Return how strongly to color a word, from 0 to 1.

    The result is proportional to the weight, 1/3 at the mean weight, and 1 from three
    times the mean weight.

    Args:
        weight: Weight of the word.
        count: Number of words in the text.
    """
    return min(1.0, weight * count / 3)


def mix(first: Color, second: Color, amount: float) -> Color:
    """Interpolate between two colors."""
    red, green, blue = (
        round(a + amount * (b - a)) for a, b in zip(first, second, strict=True)
    )
    return red, green, blue


def arc_opacity(level: int) -> float:
    """Return the opacity of arcs of a level."""
    return round(0.1 + 0.75 * level / LEVELS, 2)


def arc_width(level: int) -> float:
    """Return the line width of arcs of a level."""
    return round(0.8 + 1.2 * level / LEVELS, 2)


def to_hex(color: Color) -> str:
    """Return the color as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*color)
