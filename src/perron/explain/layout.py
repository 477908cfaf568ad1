"""Where everything in a picture of the graph is."""

from collections.abc import Sequence

from perron.explain.flow import check_head, made_of, per_cent, shares, summary, verdict
from perron.explain.picture import (
    NOTE,
    NUMBER,
    Column,
    Picture,
    Section,
    Text,
    fitted,
    note,
    place_graph,
    width_of,
)
from perron.explain.records import Explanation

_MARGIN = 24.0
_TITLE = 17.0  # size of its font
_GUTTER = 48.0  # for the number of a sentence


def lay_out(
    record: Explanation, head: int | None = None, width: float = 880.0
) -> Picture:
    """Place the words of all graphs in reading order, with their arcs.

    Args:
        record: what to draw.
        head: which weights and edges; the mean of all if not given.
        width: of the picture, which has as many lines as that takes.
    """
    check_head(record, head)
    column = Column(_MARGIN, width - _MARGIN, 2 * _MARGIN + _TITLE)
    texts = _title(record, head, width)
    sections = _sections(record, head, column)
    if record.has_edges:
        told = "Arcs: the strongest edges, from word to word; the bolder, the stronger."
        texts.append(note(fitted(told, NOTE, width - 2 * _MARGIN), _MARGIN, column.y))
        column.y += 16
    shapes = [*texts, *(shape for part in sections for shape in part.shapes)]
    return Picture(
        max(shape.right for shape in shapes) + _MARGIN,
        column.y + _MARGIN / 2,
        f"{verdict(record)}, says {made_of(record, head)}",
        f"What the words weigh: {summary(record, head)}",
        texts,
        sections,
    )


def _title(record: Explanation, head: int | None, width: float) -> list[Text]:
    y = _MARGIN + 14
    label = fitted(verdict(record), _TITLE, 0.6 * width)
    wide = width_of(label, _TITLE, bold=True)
    left = _MARGIN + wide + 16
    model = fitted(made_of(record, head), NOTE, width - _MARGIN - left)
    return [Text(label, _MARGIN, y, _TITLE, wide, bold=True), note(model, left, y)]


def _sections(record: Explanation, head: int | None, column: Column) -> list[Section]:
    if record.sentences is not None:
        return _document(record, head, column)
    if record.pair is None:
        return [place_graph("words", record.words[0], head, column)]
    sections = []
    for name, graph in zip(("first text", "second text"), record.words, strict=True):
        heading = _heading(name, column)
        section = place_graph(name, graph, head, column)
        sections.append(_with(section, [heading]))
    return sections


def _document(record: Explanation, head: int | None, column: Column) -> list[Section]:
    """Place a bar of all sentences, then the words of each."""
    assert record.sentences is not None
    weights = shares(record.sentences, head)
    heading = _heading("sentences", column)
    bar = place_graph("sentences", record.sentences, head, column, numbered=True)
    sections = [_with(bar, [heading])]
    column.left += _GUTTER
    for place, graph in enumerate(record.words):
        name = f"sentence {place + 1}"
        section = place_graph(name, graph, head, column)
        first = section.texts[0] if not section.tiles else section.tiles[0].texts[0]
        numbers = [note(str(place + 1), _MARGIN, first.y)]
        if weights is not None:
            share = per_cent(weights[place])
            numbers.append(note(share, _MARGIN, first.y + 12, NUMBER))
        sections.append(_with(section, numbers))
    return sections


def _heading(name: str, column: Column) -> Text:
    heading = note(name, column.left, column.y)
    column.y += 8
    return heading


def _with(section: Section, texts: Sequence[Text]) -> Section:
    return Section(section.name, section.tiles, section.arcs, [*section.texts, *texts])
