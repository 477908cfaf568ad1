"""Pictures of the graph as SVG and PNG.

The SVG has no script, but responds to the mouse.
"""

import warnings
from collections.abc import Sequence
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.patches import FancyBboxPatch
from matplotlib.path import Path as Curve
from matplotlib.textpath import text_to_path

from perron.explain.colors import (
    DARK,
    LEVELS,
    LIGHT,
    STEPS,
    Color,
    Palette,
    css,
    opacity_of,
    thickness_of,
)
from perron.explain.layout import lay_out
from perron.explain.picture import (
    FAMILY,
    TIP,
    TIP_WIDTH,
    Arc,
    Picture,
    Section,
    Text,
    Tile,
)
from perron.explain.records import Explanation
from perron.files import atomic_write

_CORNER = 4
_TIPS = {"tip": "arc", "tip-in": "incoming", "tip-out": "outgoing"}


def svg(record: Explanation, head: int | None = None) -> str:
    """Return a picture of the graph.

    A word that is pointed at, or reached by the keyboard, shows its own arcs: from
    where its importance comes, and where it goes. Colors follow the reader's choice
    of light or dark.

    Args:
        record: what to draw.
        head: which weights and edges; the mean of all if not given.
    """
    picture = lay_out(record, head)
    wide, high = _short(picture.width), _short(picture.height)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="perron-graph" '
            f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" '
            'role="document">',
            f"<title>{escape(picture.title)}</title>",
            f"<desc>{escape(picture.description)}</desc>",
            f"<style>{_style()}</style>",
            f"<defs>{''.join(_marker(name) for name in _TIPS)}</defs>",
            '<rect class="paper" width="100%" height="100%"/>',
            *(_text(text) for text in picture.texts),
            *(_section(section) for section in picture.sections),
            "</svg>\n",
        ]
    )


def _section(section: Section) -> str:
    lines = [_text(text) for text in section.texts]
    if section.tiles:
        lines.append(f'<g class="words" role="list" aria-label="{section.name}">')
        if section.arcs:
            lines.append(
                f'<g class="arcs" aria-hidden="true">{_arcs(section.arcs)}</g>'
            )
        lines += [*(_tile(tile) for tile in section.tiles), "</g>"]
    return "\n".join(lines)


def _tile(tile: Tile) -> str:
    told = tile.story
    shade = "plain" if tile.shade is None else f"s{tile.shade}"
    own = "".join(
        f'<g class="own {name}" aria-hidden="true">{_arcs(arcs)}</g>'
        for name, arcs in (("in", tile.incoming), ("out", tile.outgoing))
        if arcs
    )
    return (
        f'<g class="word" tabindex="0" role="listitem" aria-label={quoteattr(told)}>'
        f"<title>{escape(told)}</title>"
        f'<rect class="{shade}" x="{_short(tile.x)}" y="{_short(tile.y)}" '
        f'width="{_short(tile.width)}" height="{_short(tile.height)}" rx="{_CORNER}"/>'
        f"{''.join(_text(text) for text in tile.texts)}{own}</g>"
    )


def _text(text: Text) -> str:
    if not text.text:
        return ""
    looks = text.role + (" bold" if text.bold else "") + (" mid" * text.centered)
    return (
        f'<text class="{looks}" x="{_short(text.x)}" y="{_short(text.y)}" '
        f'font-size="{_short(text.size)}" textLength="{_short(text.width)}" '
        f'lengthAdjust="spacingAndGlyphs">{escape(text.text)}</text>'
    )


def _arcs(arcs: Sequence[Arc]) -> str:
    return "".join(f'<path class="a{arc.level}" d="{_curve(arc)}"/>' for arc in arcs)


def _curve(arc: Arc) -> str:
    first, *others = (f"{_short(x)} {_short(y)}" for x, y in arc.points)
    return f"M{first}C{' '.join(others)}"


def _marker(name: str) -> str:
    return (
        f'<marker id="perron-{name}" markerUnits="userSpaceOnUse" orient="auto" '
        f'refY="{TIP_WIDTH / 2}" markerWidth="{TIP}" markerHeight="{TIP_WIDTH}">'
        f'<path class="{name}" d="M0 0L{TIP} {TIP_WIDTH / 2}L0 {TIP_WIDTH}Z"/></marker>'
    )


def _short(number: float) -> str:
    """Return at most one digit behind the point."""
    return f"{number:.1f}".removesuffix(".0")


def _style() -> str:
    """Return rules that reach no further than this picture, if it is in a page."""
    levels = {
        f".a{level}": f"opacity:{opacity_of(level)};stroke-width:{thickness_of(level)}"
        for level in range(LEVELS + 1)
    }
    rules = {
        "": "color-scheme:light dark",
        "text": f'font-family:"{FAMILY}",Verdana,sans-serif;pointer-events:none',
        ".bold": "font-weight:bold",
        ".mid": "text-anchor:middle",
        ".word": "outline:none",
        ".word rect": "stroke-width:1",
        ".word:hover rect,.word:focus rect": "stroke-width:2",
        ".arcs,.own": "fill:none;pointer-events:none;transition:opacity .15s",
        ".own": "display:none",
        ".word:hover .own,.word:focus .own": "display:inline",
        ".words:hover .arcs,.words:focus-within .arcs": "opacity:.15",
        ".arcs path": "marker-end:url(#perron-tip)",
        ".in path": "marker-end:url(#perron-tip-in)",
        ".out path": "marker-end:url(#perron-tip-out)",
        **levels,
    }
    night = _scoped(_colors(DARK))
    return (
        f"{_scoped(rules)}{_scoped(_colors(LIGHT))}"
        f"@media (prefers-color-scheme:dark){{{night}}}"
    )


def _colors(palette: Palette) -> dict[str, str]:
    named = {name: css(color) for name, color in palette._asdict().items()}
    return {
        ".paper,.plain": f"fill:{named['paper']}",
        ".ink": f"fill:{named['ink']}",
        ".muted": f"fill:{named['muted']}",
        ".word rect": f"stroke:{named['rim']}",
        ".word:hover rect,.word:focus rect": f"stroke:{named['ink']}",
        ".arcs path": f"stroke:{named['arc']}",
        ".in path": f"stroke:{named['incoming']}",
        ".out path": f"stroke:{named['outgoing']}",
        **{f".{name}": f"fill:{named[key]}" for name, key in _TIPS.items()},
        **{
            f".s{step}": f"fill:{css(palette.shade(step))}" for step in range(STEPS + 1)
        },
    }


def _scoped(rules: dict[str, str]) -> str:
    lines = []
    for selectors, rule in rules.items():
        inside = (f".perron-graph {one}".strip() for one in selectors.split(","))
        lines.append(f"{','.join(inside)}{{{rule}}}")
    return "\n".join(lines)


_UNITS = 100  # of the layout, to an inch
_FINE = 200  # dots to an inch
_HIGHEST = 30_000  # dots; a picture that would be higher is drawn less finely

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
    atomic_write(Path(path), content.getvalue())


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
    colors = [(*_part(LIGHT.arc), opacity_of(arc.level)) for arc in arcs]
    lines = PathCollection(
        [Curve(arc.points, curve) for arc in arcs],
        facecolors="none",
        edgecolors=colors,
        linewidths=[thickness_of(arc.level) * 72 / _UNITS for arc in arcs],
        capstyle="butt",
        zorder=1,
    )
    tips = PathCollection(
        [_tip(arc) for arc in arcs], facecolors=colors, linewidths=0, zorder=1
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
    colors = [_part(getattr(LIGHT, text.role)) for text in texts]
    letters = PathCollection(outlines, facecolors=colors, linewidths=0, zorder=3)
    axes.add_collection(letters, autolim=False)


def _outline(text: Text) -> Curve:
    """Return the outline of a line of text where it stands; y goes down here."""
    vertices, codes = _letters(text.text, text.bold)
    if not len(vertices):
        return Curve(np.empty((0, 2)))
    # As wide as it was measured, even if the letters come from another font.
    scale = text.size / text_to_path.FONT_SCALE
    narrow = min(1.0, text.width / (scale * vertices[:, 0].max() or 1.0))
    left = text.x - text.width / 2 if text.centered else text.x
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


def _part(color: Color) -> tuple[float, float, float]:
    red, green, blue = color
    return red / 255, green / 255, blue / 255
