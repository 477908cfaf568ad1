"""SVG and PNG images of the graph.

The SVG is interactive, but contains no scripts.
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

from perron.explain.flow import (
    DARK,
    LEVELS,
    LIGHT,
    STEPS,
    Color,
    Palette,
    arc_opacity,
    arc_width,
    to_hex,
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


def to_svg(record: Explanation, head: int | None = None) -> str:
    """Return an image of the graph as SVG.

    Hovering over a word, or moving the keyboard focus to it, shows its strongest
    incoming and outgoing flows. The colors follow the light or dark theme of the
    system.

    Args:
        record: Record to draw.
        head: Head to draw. Defaults to the mean of all heads.
    """
    picture = lay_out(record, head)
    width, height = _decimal(picture.width), _decimal(picture.height)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="perron-graph" '
            f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
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
    label = tile.description
    shade = "plain" if tile.shade is None else f"s{tile.shade}"
    own = "".join(
        f'<g class="own {name}" aria-hidden="true">{_arcs(arcs)}</g>'
        for name, arcs in (("in", tile.incoming), ("out", tile.outgoing))
        if arcs
    )
    width, height = _decimal(tile.width), _decimal(tile.height)
    return (
        f'<g class="word" tabindex="0" role="listitem" aria-label={quoteattr(label)}>'
        f"<title>{escape(label)}</title>"
        f'<rect class="{shade}" x="{_decimal(tile.x)}" y="{_decimal(tile.y)}" '
        f'width="{width}" height="{height}" rx="{_CORNER}"/>'
        f"{''.join(_text(text) for text in tile.texts)}{own}</g>"
    )


def _text(text: Text) -> str:
    if not text.text:
        return ""
    classes = text.role + " bold" * text.bold + " centered" * text.centered
    return (
        f'<text class="{classes}" x="{_decimal(text.x)}" y="{_decimal(text.y)}" '
        f'font-size="{_decimal(text.size)}" textLength="{_decimal(text.width)}" '
        f'lengthAdjust="spacingAndGlyphs">{escape(text.text)}</text>'
    )


def _arcs(arcs: Sequence[Arc]) -> str:
    return "".join(f'<path class="a{arc.level}" d="{_curve(arc)}"/>' for arc in arcs)


def _curve(arc: Arc) -> str:
    first, *others = (f"{_decimal(x)} {_decimal(y)}" for x, y in arc.points)
    return f"M{first}C{' '.join(others)}"


def _marker(name: str) -> str:
    return (
        f'<marker id="perron-{name}" markerUnits="userSpaceOnUse" orient="auto" '
        f'refY="{TIP_WIDTH / 2}" markerWidth="{TIP}" markerHeight="{TIP_WIDTH}">'
        f'<path class="{name}" d="M0 0L{TIP} {TIP_WIDTH / 2}L0 {TIP_WIDTH}Z"/></marker>'
    )


def _decimal(number: float) -> str:
    """Format a number with at most one decimal."""
    return f"{number:.1f}".removesuffix(".0")


def _style() -> str:
    """Return CSS rules that apply only to this image, not to the page around it."""
    levels = {
        f".a{level}": f"opacity:{arc_opacity(level)};stroke-width:{arc_width(level)}"
        for level in range(LEVELS + 1)
    }
    rules = {
        "": "color-scheme:light dark",
        "text": f'font-family:"{FAMILY}",Verdana,sans-serif;pointer-events:none',
        ".bold": "font-weight:bold",
        ".centered": "text-anchor:middle",
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
    dark = _scoped(_colors(DARK))
    return (
        f"{_scoped(rules)}{_scoped(_colors(LIGHT))}"
        f"@media (prefers-color-scheme:dark){{{dark}}}"
    )


def _colors(palette: Palette) -> dict[str, str]:
    named = {name: to_hex(color) for name, color in palette._asdict().items()}
    return {
        ".paper,.plain": f"fill:{named['paper']}",
        ".ink": f"fill:{named['ink']}",
        ".muted": f"fill:{named['muted']}",
        ".word rect": f"stroke:{named['border']}",
        ".word:hover rect,.word:focus rect": f"stroke:{named['ink']}",
        ".arcs path": f"stroke:{named['arc']}",
        ".in path": f"stroke:{named['incoming']}",
        ".out path": f"stroke:{named['outgoing']}",
        **{f".{name}": f"fill:{named[key]}" for name, key in _TIPS.items()},
        **{
            f".s{step}": f"fill:{to_hex(palette.shade(step))}"
            for step in range(STEPS + 1)
        },
    }


def _scoped(rules: dict[str, str]) -> str:
    lines = []
    for selectors, rule in rules.items():
        scoped = (f".perron-graph {part}".strip() for part in selectors.split(","))
        lines.append(f"{','.join(scoped)}{{{rule}}}")
    return "\n".join(lines)


_UNITS = 100  # layout units per inch
_DPI = 200
_MAX_HEIGHT = 30_000  # pixels; taller pictures are drawn at a lower resolution

# Fonts with characters that the main font lacks, used if they are installed.
_FALLBACK_FONTS = (
    "Noto Sans CJK SC",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "PingFang HK",
)


def save_png(record: Explanation, path: str | Path, head: int | None = None) -> None:
    """Save an image of the graph as PNG.

    Args:
        record: Record to draw.
        path: Path of the file.
        head: Head to draw. Defaults to the mean of all heads.
    """
    picture = lay_out(record, head)
    size = picture.width / _UNITS, picture.height / _UNITS
    figure = Figure(figsize=size, facecolor=_rgb(LIGHT.paper))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
    axes.set_axis_off()
    _draw(picture, axes)
    content = BytesIO()
    dpi = min(_DPI, _MAX_HEIGHT / size[1])
    options = {"compress_level": 4}  # faster than the default, 6
    figure.savefig(content, format="png", dpi=dpi, pil_kwargs=options)
    atomic_write(Path(path), content.getvalue())


def _draw(picture: Picture, axes: Axes) -> None:
    texts = list(picture.texts)
    for section in picture.sections:
        _draw_arcs(section.arcs, axes)
        _draw_tiles(section.tiles, axes)
        texts += section.texts
        texts += [text for tile in section.tiles for text in tile.texts]
    _draw_texts(texts, axes)


def _draw_arcs(arcs: list[Arc], axes: Axes) -> None:
    codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
    colors = [(*_rgb(LIGHT.arc), arc_opacity(arc.level)) for arc in arcs]
    lines = PathCollection(
        [Curve(arc.points, codes) for arc in arcs],
        facecolors="none",
        edgecolors=colors,
        linewidths=[arc_width(arc.level) * 72 / _UNITS for arc in arcs],
        capstyle="butt",
        zorder=1,
    )
    tips = PathCollection(
        [_tip(arc) for arc in arcs], facecolors=colors, linewidths=0, zorder=1
    )
    axes.add_collection(lines, autolim=False)
    axes.add_collection(tips, autolim=False)


def _tip(arc: Arc) -> Curve:
    """Return the arrowhead of an arc. Every arc ends vertically."""
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
        facecolors=[_rgb(LIGHT.shade(tile.shade or 0)) for tile in tiles],
        edgecolors=[_rgb(LIGHT.border)],
        linewidths=72 / _UNITS,
        zorder=2,
    )
    axes.add_collection(boxes, autolim=False)


def _draw_texts(texts: list[Text], axes: Axes) -> None:
    with warnings.catch_warnings():
        # Characters that are missing from all fonts are drawn as boxes.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        outlines = [_outline(text) for text in texts]
    colors = [_rgb(getattr(LIGHT, text.role)) for text in texts]
    glyphs = PathCollection(outlines, facecolors=colors, linewidths=0, zorder=3)
    axes.add_collection(glyphs, autolim=False)


def _outline(text: Text) -> Curve:
    """Return the outline of a line of text at its position, with y pointing down."""
    vertices, codes = _glyphs(text.text, text.bold)
    if not len(vertices):
        return Curve(np.empty((0, 2)))
    # Glyphs of a fallback font may be wider than measured; compress them.
    scale = text.size / text_to_path.FONT_SCALE
    stretch = min(1.0, text.width / (scale * vertices[:, 0].max() or 1.0))
    left = text.x - text.width / 2 if text.centered else text.x
    return Curve(vertices * (scale * stretch, -scale) + (left, text.y), codes)


@lru_cache(4096)  # words and percentages repeat
def _glyphs(text: str, bold: bool) -> tuple[np.ndarray, np.ndarray]:
    font = _font("bold" if bold else "normal")
    vertices, codes = text_to_path.get_text_path(font, text, ismath=False)
    return np.reshape(vertices, (-1, 2)), np.asarray(codes, np.uint8)


@cache
def _font(weight: str) -> FontProperties:
    installed = {font.name for font in fontManager.ttflist}
    fallbacks = [name for name in _FALLBACK_FONTS if name in installed]
    return FontProperties(family=[FAMILY, *fallbacks], weight=weight)


def _rgb(color: Color) -> tuple[float, float, float]:
    red, green, blue = color
    return red / 255, green / 255, blue / 255
