"""Loading of datasets, and dataset statistics."""

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
from perron.text.cache import cache_key, cached_dataset, read_metadata
from perron.text.formats import (
    Columns,
    DataFile,
    Format,
    Row,
    get_format,
    infer_format,
)
from perron.text.formats.base import check_encoding
from perron.text.formats.rows import text_problem, usable_rows
from perron.text.sampling import random_split, stable_permutation, stratified_split
from perron.text.settings import DataSettings
from perron.text.tokenizers import Case
from perron.text.vocabulary import count_dataset_words

# Settings that determine the rows read from a file, besides the format's own options.
_CACHE_KEY_SETTINGS = {"format", "text", "text_pair", "label", "encoding"}
_CACHE_KEY_SETTINGS |= {"skip_invalid", "drop_labels"}

log = logging.getLogger(__name__)


class SourceRows(NamedTuple):
    """Usable rows of one file, and the number of rows skipped and dropped."""

    rows: Dataset
    source_name: str
    skipped: int
    dropped: int


def source_files(settings: DataSettings, root: Path | None = None) -> list[Path]:
    """Return the paths of the data files; raise a DataError if one is missing."""
    names = (settings.train, settings.dev, settings.test)
    present = [name for name in names if name is not None]
    return get_format(settings.format).files(present, root)


def read_source(
    settings: DataSettings, name: str | None, root: Path | None, training: bool = False
) -> SourceRows:
    """Read the usable rows of one file; labels are class names."""
    format = get_format(settings.format)
    invalid_rows = InvalidRows(settings.skip_invalid)
    options = {
        key: getattr(settings, key)
        for key in format.options
        if training or key not in format.training_options
    }
    columns = settings.columns
    file = format.open(
        DataFile(str(name), invalid_rows, columns, settings.encoding, options), root
    )
    key_values = settings.model_dump(include=_CACHE_KEY_SETTINGS) | {"options": options}
    key_values |= format.cache_key_values(file)
    paths = [] if file.path is None else [file.path]
    key = cache_key(key_values, [*paths, *_source_code(format)])
    drop = {*settings.drop_labels, *format.drop_labels}
    rows = usable_rows(format.read(file), file.source_name, invalid_rows, drop)
    data = cached_dataset(
        (row._asdict() for row in rows),
        _schema(is_pair=settings.text_pair is not None),
        key,
        metadata=lambda: {
            "skipped": invalid_rows.skipped[file.source_name],
            "dropped": invalid_rows.dropped[file.source_name],
            "problems": invalid_rows.problems,
        },
    )
    metadata = read_metadata(data)
    for problem in metadata["problems"]:
        log.warning("skipped an invalid row: %s", problem)
    return SourceRows(data, file.source_name, metadata["skipped"], metadata["dropped"])


def _source_code(format: Format) -> list[Path]:
    """Return the file that defines a user-defined format, for the cache key."""
    module = type(format).__module__
    path = getattr(sys.modules.get(module), "__file__", None)
    return [] if path is None or module.startswith("perron.") else [Path(path)]


def _schema(is_pair: bool) -> pa.Schema:
    pair = [("pair", pa.string())] if is_pair else []
    return pa.schema(
        [("text", pa.string()), *pair, ("label", pa.string()), ("line", pa.int32())]
    )


def find_labels(settings: DataSettings, train: SourceRows) -> tuple[str, ...]:
    """Return the class names: those of the format, else the sorted labels of the rows.

    Labels are sorted as numbers if all of them are integers.

    Raises:
        DataError: If the rows have fewer than two distinct labels.
    """
    labels = pc.unique(train.rows.data.column("label")).to_pylist()
    if len(labels) < 2:
        problem = f"at least two classes are required, got only {', '.join(labels)!r}."
        raise DataError(problem, train.source_name)
    format = get_format(settings.format)
    fixed = format.labels({key: getattr(settings, key) for key in format.options})
    if fixed is not None:
        return fixed
    try:
        return tuple(sorted(labels, key=int))
    except ValueError:
        return tuple(sorted(labels))


def with_label_ids(
    source: SourceRows, labels: Sequence[str], skip_invalid: bool
) -> SourceRows:
    """Replace each label with its index in ``labels``; the texts stay on disk.

    Raises:
        DataError: If a label is unknown (unless ``skip_invalid``), or no rows are left.
    """
    rows = source.rows
    index = pc.index_in(rows.data.column("label"), value_set=pa.array(list(labels)))
    label_ids = index.fill_null(-1).to_numpy().astype(np.int64)
    known = label_ids >= 0
    invalid_rows = InvalidRows(skip_invalid)
    expected = ", ".join(labels)
    for row in rows.select(np.flatnonzero(~known)):
        problem = f"label must be one of {expected}, got {row['label']!r}"
        invalid_rows.report(source.source_name, row["line"], problem)
    rows = rows.remove_columns("label").add_column("label", label_ids)
    if not known.all():
        rows = rows.select(np.flatnonzero(known))
    if not len(rows):
        raise DataError(
            f"no usable rows. First problem: {invalid_rows.problems[0]}",
            source.source_name,
        )
    skipped = source.skipped + invalid_rows.skipped[source.source_name]
    return source._replace(rows=rows, skipped=skipped)


DEFAULT_SPLIT = (0.8, 0.1, 0.1)
DEFAULT_SPLIT_WITH_TEST = (0.9, 0.1, 0.0)  # for data with a test file
PARTS = ("train", "dev", "test")
TEXT_ONLY = Columns(text="text", pair=None, label=None)


@dataclass(frozen=True)
class Splits:
    """Train, dev and test data.

    The datasets have the columns ``text``, ``label`` (an index into ``labels``),
    ``line`` (the line of the file, starting at 1) and, for pairs, ``pair``.

    Attributes:
        train: Rows to train on.
        dev: Rows used to select the best epoch.
        test: Rows to test on, or None.
        labels: Names of the classes.
        is_pair: Whether each row has two texts.
        skipped: Number of invalid rows skipped in each file.
        dropped: Number of rows in each file that were dropped because of their label.
    """

    train: Dataset
    dev: Dataset
    test: Dataset | None
    labels: tuple[str, ...]
    is_pair: bool
    skipped: dict[str, int]
    dropped: dict[str, int]


def load_data(settings: DataSettings, root: Path | None = None) -> Splits:
    """Load a dataset: read, validate and split it.

    Args:
        settings: Data settings.
        root: Folder for relative paths. Defaults to the folder in PERRON_DATA, then the
            current folder.
    """
    source = read_source(settings, settings.train, root, training=True)
    labels = find_labels(settings, source)
    train = with_label_ids(source, labels, settings.skip_invalid)
    dev, test = (
        None if name is None else _read_labeled(settings, name, labels, root)
        for name in (settings.dev, settings.test)
    )
    sources = [source for source in (train, dev, test) if source is not None]
    parts = (
        _split(train.rows, settings) if dev is None else (train.rows, dev.rows, None)
    )
    return Splits(
        train=_sample_train_rows(parts[0], settings),
        dev=parts[1],
        test=parts[2] if test is None else test.rows,
        labels=labels,
        is_pair=settings.text_pair is not None,
        skipped={source.source_name: source.skipped for source in sources},
        dropped={source.source_name: source.dropped for source in sources},
    )


def load_split(
    settings: DataSettings,
    name: str,
    labels: Sequence[str],
    root: Path | None = None,
) -> SourceRows:
    """Read one file or split to evaluate a trained model on.

    Args:
        settings: Data settings of the training run; the format may differ.
        name: Path of a file; for the Hub, name of a split; for packaged data, one of
            train, dev and test.
        labels: Names of the classes, in the model's order.
        root: Folder for relative paths; see `load_data`.
    """
    source = _read_labeled(settings, name, labels, root)
    format = get_format(settings.format)
    if format.location != "package":
        return source
    if name not in PARTS:
        raise SettingsError(
            f"--part must be train, dev or test for format {settings.format}, "
            f"got {name!r}."
        )
    return source._replace(rows=_split(source.rows, settings)[PARTS.index(name)])


def read_texts(
    path: str | Path,
    format: str | None = None,
    columns: Columns = TEXT_ONLY,
    invalid_rows: InvalidRows | None = None,
    encoding: str = "utf-8",
    keep_columns: bool = False,
) -> Iterator[Row]:
    """Yield texts to classify, one at a time, including empty ones.

    Args:
        path: File with one text per row. In a ``.txt`` file, or with the format
            ``lines``, each line is a text without a label.
        format: Name of the format. By default, inferred from the file extension.
        columns: Columns to read. Labels are optional.
        invalid_rows: Policy for rows that cannot be read. Defaults to raising an error.
        encoding: Encoding of text files.
        keep_columns: Whether to keep all columns of the file in `Row.columns`.
    """
    chosen = get_format(format or infer_format(path))
    file = DataFile(
        str(path),
        invalid_rows or InvalidRows(),
        columns,
        check_encoding(encoding),
        keep_columns=keep_columns,
    )
    if chosen.location == "file":
        file = chosen.open(file)
    return _storable_rows(chosen.read_texts(file), file)


def _storable_rows(rows: Iterator[Row], file: DataFile) -> Iterator[Row]:
    for row in rows:
        if problem := text_problem(row):
            file.report(row.line, problem)
        else:
            yield row


def _read_labeled(
    settings: DataSettings, name: str, labels: Sequence[str], root: Path | None
) -> SourceRows:
    source = read_source(settings, name, root)
    return with_label_ids(source, labels, settings.skip_invalid)


def _sample_train_rows(train: Dataset, settings: DataSettings) -> Dataset:
    """Return ``max_train_rows`` random rows, in the order of the file.

    These are the first rows of a permutation that does not depend on their number, so
    that a smaller sample is a subset of a larger one.
    """
    count = settings.max_train_rows
    if count is None:
        return train
    if count > len(train):
        raise SettingsError(
            f"data.max_train_rows must be at most {len(train)}, the number of training "
            f"rows, got {count}."
        )
    return train.select(
        sorted(stable_permutation(len(train), settings.split_seed)[:count])
    )


def _split(
    rows: Dataset, settings: DataSettings
) -> tuple[Dataset, Dataset, Dataset | None]:
    """Return train, dev and test in the order of the file, without copying texts."""
    texts = (text for batch in rows.iter(1000) for text in batch["text"])
    fixed = get_format(settings.format).fixed_split(texts)
    if fixed is not None:
        fractions, order = fixed
    else:
        default = DEFAULT_SPLIT if settings.test is None else DEFAULT_SPLIT_WITH_TEST
        fractions = settings.split or default
        order = stable_permutation(len(rows), settings.split_seed)
    if fixed is None and settings.stratify:
        labels = np.asarray(rows["label"][:])
        parts = stratified_split(labels, order, fractions)
    else:
        parts = random_split(order, fractions)
    train, dev, test = (rows.select(sorted(part)) for part in parts)
    return train, dev, test if len(test) else None


@dataclass(frozen=True)
class Statistics:
    """Dataset statistics.

    Attributes:
        sizes: Number of rows in train, dev and test.
        labels: Number of training rows of each class.
        mean_length: Mean number of words per training text. The texts of a pair count
            separately.
        vocabulary: Number of distinct words in the training data.
        skipped: Number of invalid rows skipped.
        dropped: Number of rows dropped because of their label.
        fingerprint: Hash of all texts and labels, in order.
    """

    sizes: dict[str, int]
    labels: dict[str, int]
    mean_length: float
    vocabulary: int
    skipped: int
    dropped: int
    fingerprint: str


def statistics(splits: Splits, settings: DataSettings, case: Case) -> Statistics:
    """Compute the statistics of a dataset; word counts are cached on disk.

    Args:
        splits: Data; see `load_data`.
        settings: Settings used to load the data.
        case: Whether to lowercase words before counting.
    """
    parts: dict[str, Dataset | None] = {
        "train": splits.train,
        "dev": splits.dev,
        "test": splits.test,
    }
    counts = count_dataset_words(splits.train, case, settings)
    texts = len(splits.train) * (2 if splits.is_pair else 1)
    classes = Counter(splits.train["label"])
    return Statistics(
        {name: 0 if rows is None else len(rows) for name, rows in parts.items()},
        {label: classes[index] for index, label in enumerate(splits.labels)},
        sum(counts.values()) / max(1, texts),
        len(counts),
        sum(splits.skipped.values()),
        sum(splits.dropped.values()),
        fingerprint(parts.values(), splits.labels),
    )


def fingerprint(parts: Iterable[Dataset | None], labels: tuple[str, ...]) -> str:
    """Hash the texts and labels, independent of file names and formats."""

    def content() -> Iterator[bytes]:
        yield json.dumps(labels).encode()
        for rows in parts:
            yield b"part"
            for batch in () if rows is None else rows.iter(batch_size=1000):
                columns = [batch.get(name) for name in ("text", "pair", "label")]
                yield json.dumps(columns).encode()

    return digest(content())[:16]
