"""How wide text is, in the font that matplotlib brings along."""

from functools import cache
from pathlib import Path
from unicodedata import category, east_asian_width

import matplotlib
from matplotlib.ft2font import FT2Font, LoadFlags

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
