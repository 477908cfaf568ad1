"""Datasets of the Hugging Face hub, or a folder that its loader understands."""

from collections.abc import Iterator

import datasets

from perron.data.readers.columns import Columns
from perron.data.readers.rows import BadRow, BadRows, Row
from perron.errors import DataError


def open_hub(name: str, split: str, columns: Columns) -> datasets.Dataset:
    """Load one split of ``name`` or ``name:config``. Runs no code of the dataset's.

    Raises:
        DataError: it cannot be loaded, or lacks a column.
    """
    dataset, _, config = name.partition(":")
    try:
        rows = datasets.load_dataset(dataset, config or None, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"cannot load split {split!r} of {name!r}: {error}") from error
    columns.check(rows.column_names, f"{name} ({split})")
    return rows


def read_hub(
    rows: datasets.Dataset, place: str, columns: Columns, bad: BadRows
) -> Iterator[Row]:
    """Yield the rows, read from disk as they are asked for; classes by their names."""
    label = rows.features[columns.label] if columns.label else None
    named = isinstance(label, datasets.ClassLabel)
    for number, record in enumerate(rows.select_columns(columns.names), start=1):
        try:
            row = columns.row(number, record)
            if named:
                row = row._replace(label=_class_name(label, record[columns.label]))
        except BadRow as problem:
            bad.report(place, number, str(problem))
        else:
            yield row


def _class_name(feature: datasets.ClassLabel, index: int | None) -> str | None:
    # The hub writes -1 where a label is withheld.
    return None if index is None or index < 0 else feature.int2str(index)
