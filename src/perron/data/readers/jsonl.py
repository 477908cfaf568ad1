"""JSON lines: one object a line."""

import json
from collections.abc import Iterator
from pathlib import Path

from perron.data.readers.columns import Columns
from perron.data.readers.rows import BadRow, BadRows, Row, numbered_lines


def read_jsonl(path: Path, columns: Columns, bad: BadRows) -> Iterator[Row]:
    """Yield a row for each object."""
    for number, line in numbered_lines(path, bad):
        if not line.strip():
            continue
        try:
            yield columns.row(number, _object(line))
        except BadRow as problem:
            bad.report(path, number, str(problem))


def _object(line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:  # RecursionError: [[[[...
        raise BadRow(f"broken JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRow(f"a JSON {type(value).__name__}; one object a line is expected")
    return value
