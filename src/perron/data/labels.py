"""Which classes there are, in which order, and each row's number among them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perron.data.readers.packaged import PACKAGED_LABELS
from perron.data.readers.rows import BadRows
from perron.data.readers.snli import SNLI_LABELS
from perron.data.readers.sst import SST_BINARY, SST_FINE
from perron.data.settings import PACKAGED, DataSettings
from perron.data.sources import Source
from perron.errors import DataError


def labels_of(settings: DataSettings, train: Source) -> tuple[str, ...]:
    """Return the classes: the format's own, else those found, in order.

    Names that are all whole numbers are ordered as numbers.

    Raises:
        DataError: there are fewer than two.
    """
    found = pc.unique(train.rows.data.column("label")).to_pylist()
    if len(found) < 2:
        listed = ", ".join(found)
        raise DataError(f"two classes are needed; all rows are {listed!r}", train.place)
    if settings.format == "sst":
        return SST_BINARY if settings.binary else SST_FINE
    if settings.format == "snli":
        return SNLI_LABELS
    if settings.format in PACKAGED:
        return PACKAGED_LABELS
    try:
        return tuple(sorted(found, key=int))
    except ValueError:
        return tuple(sorted(found))


def numbered(source: Source, labels: Sequence[str], skip_bad: bool) -> Source:
    """Put each label's index in the place of its name; the texts stay on disk.

    Raises:
        DataError: a label is not among ``labels``, unless bad rows are skipped.
    """
    rows = source.rows
    index = pc.index_in(rows.data.column("label"), value_set=pa.array(list(labels)))
    numbers = index.fill_null(-1).to_numpy().astype(np.int64)
    known = numbers >= 0
    bad = BadRows(skip_bad)
    for row in rows.select(np.flatnonzero(~known)):
        problem = f"unknown label {row['label']!r}; known are: {', '.join(labels)}"
        bad.report(source.place, row["line"], problem)
    rows = rows.remove_columns("label").add_column("label", numbers)
    if not known.all():
        rows = rows.select(np.flatnonzero(known))
    if not len(rows):
        raise DataError(f"no usable rows; {bad.problems[0]}", source.place)
    skipped = source.skipped + bad.skipped[source.place]
    return source._replace(rows=rows, skipped=skipped)
