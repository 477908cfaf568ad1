"""A picture of the graph as PNG."""

import warnings
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.patches import FancyBboxPatch
from matplotlib.path import Path as Curve
from matplotlib.textpath import text_to_path

from perron.explain.colours import LIGHT, Colour, opacity_of, thickness_of
from perron.explain.layout import lay_out
from perron.explain.picture import FAMILY, TIP, TIP_WIDTH, Arc, Picture, Text, Tile
from perron.explain.records import Explanation
from perron.files import write_whole

_UNITS = 100  # of the layout, to an inch
_FINE = 200  # dots to an inch
_HIGHEST = 30_000  # dots; a picture that would be higher is drawn less finely
_CORNER = 4

# Where they are installed, they have what the first one lacks.
_OTHERS = ("Noto Sans CJK SC", "WenQuanYi Zen Hei", "Microsoft YaHei", "PingFang HK")


def save_png(record: Explanation, path: str | Path, head: int | None = None) -> None:
    """Write a picture of the graph.

    Args:
        record: what to draw.
        path: of the file.
        head: which weights and edges; the mean of all if not given.
    """
    picture = lay_out(record, head)
    size = picture.width / _UNITS, picture.height / _UNITS
    figure = Figure(figsize=size, facecolor=_part(LIGHT.paper))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
    axes.set_axis_off()
    _draw(picture, axes)
    content = BytesIO()
    fine = min(_FINE, _HIGHEST / size[1])
    quick = {"compress_level": 4}
    figure.savefig(content, format="png", dpi=fine, pil_kwargs=quick)
    write_whole(Path(path), content.getvalue())


def _draw(picture: Picture, axes: Axes) -> None:
    texts = list(picture.texts)
    for section in picture.sections:
        _draw_arcs(section.arcs, axes)
        _draw_tiles(section.tiles, axes)
        texts += section.texts
        texts += [text for tile in section.tiles for text in tile.texts]
    _write(texts, axes)


def _draw_arcs(arcs: list[Arc], axes: Axes) -> None:
    curve = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
    colours = [(*_part(LIGHT.arc), opacity_of(arc.level)) for arc in arcs]
    lines = PathCollection(
        [Curve(arc.points, curve) for arc in arcs],
        facecolors="none",
        edgecolors=colours,
        linewidths=[thickness_of(arc.level) * 72 / _UNITS for arc in arcs],
        capstyle="butt",
        zorder=1,
    )
    tips = PathCollection(
        [_tip(arc) for arc in arcs], facecolors=colours, linewidths=0, zorder=1
    )
    axes.add_collection(lines, autolim=False)
    axes.add_collection(tips, autolim=False)


def _tip(arc: Arc) -> Curve:
    """Return an arrowhead; every arc arrives straight from above or from below."""
    (_, before), (x, y) = arc.points[2:]
    end, half = y + (TIP if y > before else -TIP), TIP_WIDTH / 2
    return Curve([(x - half, y), (x + half, y), (x, end), (x, end)], closed=True)


def _draw_tiles(tiles: list[Tile], axes: Axes) -> None:
    shape = f"round,pad=0,rounding_size={_CORNER}"
    patches = [
        FancyBboxPatch((tile.x, tile.y), tile.width, tile.height, boxstyle=shape)
        for tile in tiles
    ]
    boxes = PatchCollection(
        patches,
        facecolors=[_part(LIGHT.shade(tile.shade or 0)) for tile in tiles],
        edgecolors=[_part(LIGHT.rim)],
        linewidths=72 / _UNITS,
        zorder=2,
    )
    axes.add_collection(boxes, autolim=False)


def _write(texts: list[Text], axes: Axes) -> None:
    with warnings.catch_warnings():
        # A box stands for a character that no font has.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        outlines = [_outline(text) for text in texts]
    colours = [_part(getattr(LIGHT, text.role)) for text in texts]
    letters = PathCollection(outlines, facecolors=colours, linewidths=0, zorder=3)
    axes.add_collection(letters, autolim=False)


def _outline(text: Text) -> Curve:
    """Return the outline of a line of text where it stands; y goes down here."""
    vertices, codes = _letters(text.text, text.bold)
    if not len(vertices):
        return Curve(np.empty((0, 2)))
    # As wide as it was measured, even if the letters come from another font.
    scale = text.size / text_to_path.FONT_SCALE
    narrow = min(1.0, text.width / (scale * vertices[:, 0].max() or 1.0))
    left = text.x - text.width / 2 if text.centred else text.x
    return Curve(vertices * (scale * narrow, -scale) + (left, text.y), codes)


@lru_cache(4096)  # the same words and per cents again and again
def _letters(text: str, bold: bool) -> tuple[np.ndarray, np.ndarray]:
    font = _font("bold" if bold else "normal")
    vertices, codes = text_to_path.get_text_path(font, text, ismath=False)
    return np.reshape(vertices, (-1, 2)), np.asarray(codes, np.uint8)


@cache
def _font(weight: str) -> FontProperties:
    names = {font.name for font in fontManager.ttflist}
    others = [other for other in _OTHERS if other in names]
    return FontProperties(family=[FAMILY, *others], weight=weight)


def _part(colour: Colour) -> tuple[float, float, float]:
    red, green, blue = colour
    return red / 255, green / 255, blue / 255
