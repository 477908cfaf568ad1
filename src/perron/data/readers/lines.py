"""Plain text: ``label text...`` to train on, or one text a line to classify."""

from collections.abc import Iterator
from pathlib import Path

from perron.data.readers.rows import BadRows, Row, numbered_lines


def read_lines(path: Path, bad: BadRows) -> Iterator[Row]:
    """Yield what follows the first blank or tab as the text of the label before it."""
    for number, line in numbered_lines(path, bad):
        label, *text = line.split(maxsplit=1) or [""]
        if label:
            yield Row(number, "".join(text), label)


def read_plain(path: Path, bad: BadRows) -> Iterator[Row]:
    """Yield every line as a text without a label, empty lines too."""
    for number, line in numbered_lines(path, bad):
        yield Row(number, line, None)
