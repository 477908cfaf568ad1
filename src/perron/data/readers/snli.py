"""Stanford Natural Language Inference: pairs as JSON lines, with the owners' names."""

from collections.abc import Iterator
from pathlib import Path

from perron.data.readers.columns import Columns
from perron.data.readers.jsonl import read_jsonl
from perron.data.readers.rows import BadRows, Row

SNLI_LABELS = ("entailment", "neutral", "contradiction")
NO_AGREEMENT = "-"  # the annotators did not agree; left out by everyone
SNLI_COLUMNS = Columns(text="sentence1", pair="sentence2", label="gold_label")


def read_snli(path: Path, bad: BadRows) -> Iterator[Row]:
    """Yield each pair, those without agreement too."""
    for row in read_jsonl(path, SNLI_COLUMNS, bad):
        if row.label and row.label not in (*SNLI_LABELS, NO_AGREEMENT):
            bad.report(path, row.line, f"unknown gold_label {row.label!r}")
        else:
            yield row
