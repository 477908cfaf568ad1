"""Layout of a picture of the graph."""

from collections.abc import Sequence

from perron.explain.flow import (
    check_head,
    model_text,
    node_weights,
    percent,
    prediction_text,
    summary,
)
from perron.explain.picture import (
    NOTE,
    NUMBER,
    Column,
    Picture,
    Section,
    Text,
    fit_text,
    note,
    place_graph,
    text_width,
)
from perron.explain.records import Explanation

_MARGIN = 24.0
_TITLE = 17.0  # font size of the title
_GUTTER = 48.0  # width of the column with the numbers of the sentences


def lay_out(
    record: Explanation, head: int | None = None, width: float = 880.0
) -> Picture:
    """Lay out the words of all graphs in reading order, with their arcs.

    Args:
        record: Record to draw.
        head: Head to draw. Defaults to the mean of all heads.
        width: Maximum width of the picture.
    """
    check_head(record, head)
    column = Column(_MARGIN, width - _MARGIN, 2 * _MARGIN + _TITLE)
    texts = _title(record, head, width)
    sections = _sections(record, head, column)
    if record.has_edges:
        legend = fit_text(
            "Arcs are the strongest edges between words. Bolder arcs are stronger.",
            NOTE,
            width - 2 * _MARGIN,
        )
        texts.append(note(legend, _MARGIN, column.y))
        column.y += 16
    shapes = [*texts, *(shape for part in sections for shape in part.shapes)]
    has_weights = any(graph.weights for graph in record.words)
    subject = "Words with the largest weights" if has_weights else "Words"
    return Picture(
        max(shape.right for shape in shapes) + _MARGIN,
        column.y + _MARGIN / 2,
        f"{prediction_text(record)}, predicted by {model_text(record, head)}",
        f"{subject}: {summary(record, head)}",
        texts,
        sections,
    )


def _title(record: Explanation, head: int | None, width: float) -> list[Text]:
    y = _MARGIN + 14
    label = fit_text(prediction_text(record), _TITLE, 0.6 * width)
    label_width = text_width(label, _TITLE, bold=True)
    left = _MARGIN + label_width + 16
    model = fit_text(model_text(record, head), NOTE, width - _MARGIN - left)
    return [
        Text(label, _MARGIN, y, _TITLE, label_width, bold=True),
        note(model, left, y),
    ]


def _sections(record: Explanation, head: int | None, column: Column) -> list[Section]:
    if record.sentences is not None:
        return _document(record, head, column)
    if record.pair is None:
        return [place_graph("words", record.words[0], head, column)]
    sections = []
    for name, graph in zip(("first text", "second text"), record.words, strict=True):
        heading = _heading(name, column)
        section = place_graph(name, graph, head, column)
        sections.append(_add_texts(section, [heading]))
    return sections


def _document(record: Explanation, head: int | None, column: Column) -> list[Section]:
    """Lay out a bar with all sentences, then the words of each sentence."""
    assert record.sentences is not None
    weights = node_weights(record.sentences, head)
    heading = _heading("sentences", column)
    bar = place_graph("sentences", record.sentences, head, column, numbered=True)
    sections = [_add_texts(bar, [heading])]
    column.left += _GUTTER
    for index, graph in enumerate(record.words):
        name = f"sentence {index + 1}"
        section = place_graph(name, graph, head, column)
        first = section.texts[0] if not section.tiles else section.tiles[0].texts[0]
        numbers = [note(str(index + 1), _MARGIN, first.y)]
        if weights is not None:
            weight = percent(weights[index])
            numbers.append(note(weight, _MARGIN, first.y + 12, NUMBER))
        sections.append(_add_texts(section, numbers))
    return sections


def _heading(name: str, column: Column) -> Text:
    heading = note(name, column.left, column.y)
    column.y += 8
    return heading


def _add_texts(section: Section, texts: Sequence[Text]) -> Section:
    return Section(section.name, section.tiles, section.arcs, [*section.texts, *texts])
