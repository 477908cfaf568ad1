"""Datasets from settings: files found, rows read, labels numbered, splits made."""

import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from perron.errors import DataError, SettingsError
from perron.text.cache import facts_of, key_of, stored
from perron.text.formats import READERS_WITH_COLUMNS, Columns, columns_of, read_rows
from perron.text.formats.corpora import (
    NO_AGREEMENT,
    PACKAGED_LABELS,
    PACKAGED_SPLIT,
    SNLI_LABELS,
    SST_BINARY,
    SST_FINE,
    open_hub,
    packaged_file,
    packaged_order,
    read_hub,
)
from perron.text.formats.rows import BadRows, Row, checked, text_problem
from perron.text.formats.tabular import read_plain
from perron.text.settings import PACKAGED, DataSettings, Format, format_of

# The settings that change which rows a file gives.
_MATTER = {"format", "text", "text_pair", "label", "binary", "phrases"}
_MATTER |= {"skip_bad", "drop_labels"}

log = logging.getLogger(__name__)


class Source(NamedTuple):
    """The rows of one file and what was left out."""

    rows: Dataset
    place: str
    skipped: int
    dropped: int


def find_file(name: str, root: Path | None = None) -> Path:
    """Return where the file is: below root, else PERRON_DATA, else right here."""
    path = Path(name).expanduser()
    if root is not None:
        path = root / path
    elif home := os.environ.get("PERRON_DATA"):
        path = Path(home) / path if (Path(home) / path).exists() else path
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "no such file"
        advice = "--data-dir or PERRON_DATA tells where datasets are"
        raise DataError(f"{problem}; {advice}", path)
    return path


def source_files(settings: DataSettings, root: Path | None = None) -> list[Path]:
    """Return the files of the settings, none for the hub; raise if one is not there."""
    if settings.format == "hub":
        return []
    if settings.format in PACKAGED:
        return [packaged_file()]
    names = (settings.train, settings.dev, settings.test)
    return [find_file(name, root) for name in names if name is not None]


def read_source(
    settings: DataSettings, name: str | None, root: Path | None, training: bool = False
) -> Source:
    """Return the usable rows of one file, with their labels by name."""
    bad = BadRows(settings.skip_bad)
    settings = settings.model_copy(update={"phrases": settings.phrases and training})
    what = settings.model_dump(include=_MATTER)
    if settings.format == "hub":
        place = f"{settings.name} ({name})"
        columns = columns_of(settings)
        found = open_hub(str(settings.name), str(name), columns)
        key = key_of(what | {"place": place, "hub": found._fingerprint})
        rows = read_hub(found, place, columns, bad)
    else:
        packaged = settings.format in PACKAGED
        path = packaged_file() if packaged else find_file(str(name), root)
        place = str(path)
        key = key_of(what, [path])
        rows = read_rows(path, settings, bad)
    drop = set(settings.drop_labels)
    if settings.format == "snli":
        drop.add(NO_AGREEMENT)
    usable = checked(rows, place, bad, drop)
    data = stored(
        (row._asdict() for row in usable),
        _schema(is_pair=settings.text_pair is not None),
        key,
        facts=lambda: {
            "skipped": bad.skipped[place],
            "dropped": bad.dropped[place],
            "problems": bad.problems,
        },
    )
    facts = facts_of(data)
    for problem in facts["problems"]:
        log.warning("left out: %s", problem)
    return Source(data, place, facts["skipped"], facts["dropped"])


def _schema(is_pair: bool) -> pa.Schema:
    pair = [("pair", pa.string())] if is_pair else []
    return pa.schema(
        [("text", pa.string()), *pair, ("label", pa.string()), ("line", pa.int32())]
    )


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


DEFAULT_SPLIT = (0.8, 0.1, 0.1)
DEV_ALONE = (0.9, 0.1, 0.0)  # a test file is given: a tenth of train becomes dev


def shuffled(count: int, seed: int) -> list[int]:
    """Order 0, 1, ... by the SHA-256 of ``seed:index``: no generator may change it."""
    digests = [hashlib.sha256(f"{seed}:{i}".encode()).digest() for i in range(count)]
    return sorted(range(count), key=digests.__getitem__)


def part(
    rows: Dataset, fractions: tuple[float, float, float], order: Sequence[int]
) -> tuple[Dataset, Dataset, Dataset | None]:
    """Return train, dev and test, without copying a text.

    The first of ``order`` are tested on, the next are dev, the rest train. A part
    that is asked for gets at least one row; inside a part the file's order is kept.
    """
    total = len(rows)
    test = max(1, round(fractions[2] * total)) if fractions[2] > 0 else 0
    dev = max(1, round(fractions[1] * total))
    if test + dev >= total:
        raise DataError(f"{total} rows are too few to part as {fractions}")
    cuts = order[test + dev :], order[test : test + dev], order[:test]
    train_rows, dev_rows, test_rows = (rows.select(sorted(cut)) for cut in cuts)
    return train_rows, dev_rows, test_rows if test else None


PARTS = ("train", "dev", "test")
TEXT_ALONE = Columns(text="text", pair=None, label=None)


@dataclass(frozen=True)
class Splits:
    """What is trained on, chosen by and tested on.

    The datasets have the columns ``text``, ``label`` (an index into ``labels``),
    ``line`` (of the file, from 1) and, for pairs, ``pair``.

    Attributes:
        train: rows to train on.
        dev: rows that choose the best epoch.
        test: rows to test on, if there are any.
        labels: names of the classes.
        is_pair: whether there are two texts to a row.
        skipped: bad rows left out of each file.
        dropped: rows of each file left out for their label.
    """

    train: Dataset
    dev: Dataset
    test: Dataset | None
    labels: tuple[str, ...]
    is_pair: bool
    skipped: dict[str, int]
    dropped: dict[str, int]


def load_data(settings: DataSettings, root: Path | None = None) -> Splits:
    """Read, check and part the data that the settings describe.

    Args:
        settings: which files, in which format.
        root: folder of relative paths; unless given, they are looked for in the
            folder that PERRON_DATA names, then in the current one.
    """
    named = read_source(settings, settings.train, root, training=True)
    labels = labels_of(settings, named)
    train = numbered(named, labels, settings.skip_bad)
    dev, test = (
        None if name is None else _numbered_source(settings, name, labels, root)
        for name in (settings.dev, settings.test)
    )
    sources = [source for source in (train, dev, test) if source is not None]
    if dev is None:
        parts = _parted(train.rows, settings)
    else:
        parts = train.rows, dev.rows, None
    return Splits(
        train=_drawn(parts[0], settings),
        dev=parts[1],
        test=parts[2] if test is None else test.rows,
        labels=labels,
        is_pair=settings.text_pair is not None,
        skipped={source.place: source.skipped for source in sources},
        dropped={source.place: source.dropped for source in sources},
    )


def load_split(
    settings: DataSettings,
    name: str,
    labels: Sequence[str],
    root: Path | None = None,
) -> Source:
    """Read a file to test a model on that knows ``labels``; the rest is as trained.

    Args:
        settings: those of the training, perhaps with another format.
        name: a path; for hub a split; for packaged data train, dev or test.
        labels: names of the classes in the model's order.
        root: see `load_data`.
    """
    source = _numbered_source(settings, name, labels, root)
    if settings.format not in PACKAGED:
        return source
    if name not in PARTS:
        raise SettingsError(f"{settings.format} has train, dev and test, not {name!r}")
    return source._replace(rows=_parted(source.rows, settings)[PARTS.index(name)])


def read_texts(
    path: str | Path,
    format: Format | None = None,
    columns: Columns = TEXT_ALONE,
    bad: BadRows | None = None,
) -> Iterator[Row]:
    """Yield texts to classify, one at a time; empty ones are texts too.

    Args:
        path: a table or JSON lines with the named columns; of the format lines, or
            a ``.txt`` file, every line is a text, and has no label.
        format: unless given, guessed from the file's name.
        columns: where the texts are; the label may be None, and is in the rows too.
        bad: what happens to rows that cannot be read; unless given, an error.
    """
    format = format or format_of(path)
    bad = bad or BadRows()
    file = find_file(str(path))
    if format in READERS_WITH_COLUMNS:
        rows = READERS_WITH_COLUMNS[format](file, columns, bad)
    elif format == "lines":
        rows = read_plain(file, bad)
    elif format == "hub" or format in PACKAGED:
        raise SettingsError(f"{path}: format {format} is no file")
    else:
        rows = read_rows(file, DataSettings(format=format, train=str(file)), bad)
    return _storable(rows, file, bad)


def _storable(rows: Iterator[Row], path: Path, bad: BadRows) -> Iterator[Row]:
    for row in rows:
        if problem := text_problem(row):
            bad.report(path, row.line, problem)
        else:
            yield row


def _numbered_source(
    settings: DataSettings, name: str, labels: Sequence[str], root: Path | None
) -> Source:
    source = read_source(settings, name, root)
    return numbered(source, labels, settings.skip_bad)


def _drawn(train: Dataset, settings: DataSettings) -> Dataset:
    """Return as many rows as are asked for, in the file's order.

    They are the first of an order that does not know how many that is, so that fewer
    rows are some of more rows.
    """
    count = settings.train_rows
    if count is None:
        return train
    if count > len(train):
        raise SettingsError(
            f"data.train_rows = {count}: there are {len(train)} rows to train on; ask "
            "for as many or fewer"
        )
    return train.select(sorted(shuffled(len(train), settings.split_seed)[:count]))


def _parted(
    rows: Dataset, settings: DataSettings
) -> tuple[Dataset, Dataset, Dataset | None]:
    if settings.format in PACKAGED:
        texts = (text for batch in rows.iter(1000) for text in batch["text"])
        return part(rows, PACKAGED_SPLIT, packaged_order(texts))
    order = shuffled(len(rows), settings.split_seed)
    fractions = DEFAULT_SPLIT if settings.test is None else DEV_ALONE
    return part(rows, settings.split or fractions, order)
