"""A picture of the graph as SVG: without a script, but it answers to the mouse."""

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from perron.explain.colours import (
    DARK,
    LEVELS,
    LIGHT,
    STEPS,
    Palette,
    css,
    opacity_of,
    thickness_of,
)
from perron.explain.layout import lay_out
from perron.explain.picture import FAMILY, TIP, TIP_WIDTH, Arc, Section, Text, Tile
from perron.explain.records import Explanation

_CORNER = 4
_TIPS = {"tip": "arc", "tip-in": "incoming", "tip-out": "outgoing"}


def svg(record: Explanation, head: int | None = None) -> str:
    """Return a picture of the graph.

    A word that is pointed at, or reached by the keyboard, shows its own arcs: from
    where its importance comes, and where it goes. Colours follow the reader's choice
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
    looks = text.role + (" bold" if text.bold else "") + (" mid" * text.centred)
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
    night = _scoped(_colours(DARK))
    return (
        f"{_scoped(rules)}{_scoped(_colours(LIGHT))}"
        f"@media (prefers-color-scheme:dark){{{night}}}"
    )


def _colours(palette: Palette) -> dict[str, str]:
    named = {name: css(colour) for name, colour in palette._asdict().items()}
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
