"""Datasets from settings, and their statistics."""

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from perron.errors import DataError, InvalidRows, SettingsError
from perron.files import digest
from perron.text.cache import facts_of, key_of, stored
from perron.text.formats import (
    Columns,
    DataFile,
    Format,
    Row,
    format_named,
    format_of,
)
from perron.text.formats.base import check_encoding
from perron.text.formats.rows import checked, text_problem
from perron.text.sampling import shuffled, split_at_random, split_by_class
from perron.text.settings import DataSettings
from perron.text.tokenizers import Case
from perron.text.vocabulary import dataset_counts

# The settings that change which rows a file gives, besides the format's own.
_MATTER = {"format", "text", "text_pair", "label", "encoding"}
_MATTER |= {"skip_invalid", "drop_labels"}

log = logging.getLogger(__name__)


class SourceRows(NamedTuple):
    """The rows of one file, and how many were left out."""

    rows: Dataset
    place: str
    skipped: int
    dropped: int


def source_files(settings: DataSettings, root: Path | None = None) -> list[Path]:
    """Return the files of the settings, none for the hub; raise if one is missing."""
    names = (settings.train, settings.dev, settings.test)
    given = [name for name in names if name is not None]
    return format_named(settings.format).files(given, root)


def read_source(
    settings: DataSettings, name: str | None, root: Path | None, training: bool = False
) -> SourceRows:
    """Return the usable rows of one file, with their labels by name."""
    format = format_named(settings.format)
    bad = InvalidRows(settings.skip_invalid)
    options = {
        key: getattr(settings, key)
        for key in format.options
        if training or key not in format.training_options
    }
    file = format.open(
        DataFile(str(name), bad, settings.columns, settings.encoding, options), root
    )
    what = settings.model_dump(include=_MATTER) | {"options": options}
    what |= format.facts(file)
    paths = [] if file.path is None else [file.path]
    key = key_of(what, [*paths, *_code_of(format)])
    drop = {*settings.drop_labels, *format.drop_labels}
    usable = checked(format.read(file), file.place, bad, drop)
    data = stored(
        (row._asdict() for row in usable),
        _schema(is_pair=settings.text_pair is not None),
        key,
        facts=lambda: {
            "skipped": bad.skipped[file.place],
            "dropped": bad.dropped[file.place],
            "problems": bad.problems,
        },
    )
    facts = facts_of(data)
    for problem in facts["problems"]:
        log.warning("left out: %s", problem)
    return SourceRows(data, file.place, facts["skipped"], facts["dropped"])


def _code_of(format: Format) -> list[Path]:
    """Return the source file of a format of the user's, which changes what is read."""
    module = type(format).__module__
    path = getattr(sys.modules.get(module), "__file__", None)
    return [] if path is None or module.startswith("perron.") else [Path(path)]


def _schema(is_pair: bool) -> pa.Schema:
    pair = [("pair", pa.string())] if is_pair else []
    return pa.schema(
        [("text", pa.string()), *pair, ("label", pa.string()), ("line", pa.int32())]
    )


def labels_of(settings: DataSettings, train: SourceRows) -> tuple[str, ...]:
    """Return the classes: the format's own, else those found, in order.

    Names that are all whole numbers are ordered as numbers.

    Raises:
        DataError: there are fewer than two.
    """
    found = pc.unique(train.rows.data.column("label")).to_pylist()
    if len(found) < 2:
        listed = ", ".join(found)
        raise DataError(f"two classes are needed; all rows are {listed!r}", train.place)
    format = format_named(settings.format)
    fixed = format.labels({key: getattr(settings, key) for key in format.options})
    if fixed is not None:
        return fixed
    try:
        return tuple(sorted(found, key=int))
    except ValueError:
        return tuple(sorted(found))


def numbered(
    source: SourceRows, labels: Sequence[str], skip_invalid: bool
) -> SourceRows:
    """Put each label's index in the place of its name; the texts stay on disk.

    Raises:
        DataError: a label is not among ``labels``, unless bad rows are skipped.
    """
    rows = source.rows
    index = pc.index_in(rows.data.column("label"), value_set=pa.array(list(labels)))
    numbers = index.fill_null(-1).to_numpy().astype(np.int64)
    known = numbers >= 0
    bad = InvalidRows(skip_invalid)
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
    train = numbered(named, labels, settings.skip_invalid)
    dev, test = (
        None if name is None else _numbered_source(settings, name, labels, root)
        for name in (settings.dev, settings.test)
    )
    sources = [source for source in (train, dev, test) if source is not None]
    if dev is None:
        parts = _split(train.rows, settings)
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
) -> SourceRows:
    """Read a file to test a model on that knows ``labels``; the rest is as trained.

    Args:
        settings: those of the training, perhaps with another format.
        name: a path; for hub a split; for packaged data train, dev or test.
        labels: names of the classes in the model's order.
        root: see `load_data`.
    """
    source = _numbered_source(settings, name, labels, root)
    format = format_named(settings.format)
    if format.location != "package":
        return source
    if name not in PARTS:
        raise SettingsError(
            f"--part must be train, dev or test of {settings.format}, got {name!r}."
        )
    return source._replace(rows=_split(source.rows, settings)[PARTS.index(name)])


def read_texts(
    path: str | Path,
    format: str | None = None,
    columns: Columns = TEXT_ALONE,
    bad: InvalidRows | None = None,
    encoding: str = "utf-8",
    keep_columns: bool = False,
) -> Iterator[Row]:
    """Yield texts to classify, one at a time; empty ones are texts too.

    Args:
        path: A table or JSON lines with the named columns. In a ``.txt`` file, and with
            the format lines, every line is a text without a label.
        format: Name of the format. Defaults to that of the file's extension.
        columns: Columns of the texts; with a label, rows have labels too.
        bad: What happens to rows that cannot be read. Defaults to an error.
        encoding: Encoding of text files.
        keep_columns: Keep all columns of the file, in `Row.columns`.
    """
    chosen = format_named(format or format_of(path))
    file = DataFile(
        str(path),
        bad or InvalidRows(),
        columns,
        check_encoding(encoding),
        keep_columns=keep_columns,
    )
    if chosen.location == "file":
        file = chosen.open(file)
    return _storable(chosen.read_texts(file), file)


def _storable(rows: Iterator[Row], file: DataFile) -> Iterator[Row]:
    for row in rows:
        if problem := text_problem(row):
            file.report(row.line, problem)
        else:
            yield row


def _numbered_source(
    settings: DataSettings, name: str, labels: Sequence[str], root: Path | None
) -> SourceRows:
    source = read_source(settings, name, root)
    return numbered(source, labels, settings.skip_invalid)


def _drawn(train: Dataset, settings: DataSettings) -> Dataset:
    """Return as many rows as are asked for, in the file's order.

    They are the first of an order that does not know how many that is, so that fewer
    rows are some of more rows.
    """
    count = settings.max_train_rows
    if count is None:
        return train
    if count > len(train):
        raise SettingsError(
            f"data.max_train_rows = {count}: there are {len(train)} rows to train on; ask "
            "for as many or fewer"
        )
    return train.select(sorted(shuffled(len(train), settings.split_seed)[:count]))


def _split(
    rows: Dataset, settings: DataSettings
) -> tuple[Dataset, Dataset, Dataset | None]:
    """Return train, dev and test, without copying a text, in the file's order."""
    texts = (text for batch in rows.iter(1000) for text in batch["text"])
    fixed = format_named(settings.format).fixed_split(texts)
    if fixed is not None:
        fractions, order = fixed
    else:
        default = DEFAULT_SPLIT if settings.test is None else DEV_ALONE
        fractions = settings.split or default
        order = shuffled(len(rows), settings.split_seed)
    if fixed is None and settings.stratify:
        labels = np.asarray(rows["label"][:])
        parts = split_by_class(labels, order, fractions)
    else:
        parts = split_at_random(order, fractions)
    train, dev, test = (rows.select(sorted(part)) for part in parts)
    return train, dev, test if len(test) else None


@dataclass(frozen=True)
class Statistics:
    """Sizes, classes, length and vocabulary.

    Attributes:
        sizes: texts of each part.
        labels: texts of each class in the training data.
        mean_length: words of a training text; of both texts of a pair, each on its own.
        vocabulary: different words of the training data.
        skipped: bad rows left out.
        dropped: rows left out for their label.
        fingerprint: digest of all texts and labels, in their order.
    """

    sizes: dict[str, int]
    labels: dict[str, int]
    mean_length: float
    vocabulary: int
    skipped: int
    dropped: int
    fingerprint: str


def statistics(splits: Splits, settings: DataSettings, case: Case) -> Statistics:
    """Count; each word is counted once and the counts are kept on disk."""
    parts: dict[str, Dataset | None] = {
        "train": splits.train,
        "dev": splits.dev,
        "test": splits.test,
    }
    counts = dataset_counts(splits.train, case, settings)
    texts = len(splits.train) * (2 if splits.is_pair else 1)
    classes = Counter(splits.train["label"])
    return Statistics(
        {name: 0 if rows is None else len(rows) for name, rows in parts.items()},
        {label: classes[row] for row, label in enumerate(splits.labels)},
        sum(counts.values()) / max(1, texts),
        len(counts),
        sum(splits.skipped.values()),
        sum(splits.dropped.values()),
        _fingerprint(parts.values(), splits.labels),
    )


def _fingerprint(parts: Iterable[Dataset | None], labels: tuple[str, ...]) -> str:
    """Hash what the rows say; from which files, and how they are written, is not."""

    def content() -> Iterator[bytes]:
        yield json.dumps(labels).encode()
        for rows in parts:
            yield b"part"
            for batch in () if rows is None else rows.iter(batch_size=1000):
                columns = [batch.get(name) for name in ("text", "pair", "label")]
                yield json.dumps(columns).encode()

    return digest(content())[:16]
