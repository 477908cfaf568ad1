"""From settings to datasets: find the files, read them, number the labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset

from perron.data.labels import labels_of, numbered
from perron.data.readers import READERS_WITH_COLUMNS, Columns, read_rows
from perron.data.readers.lines import read_plain
from perron.data.readers.packaged import PACKAGED_SPLIT, packaged_order
from perron.data.readers.rows import BadRows, Row, text_problem
from perron.data.settings import PACKAGED, DataSettings, Format, format_of
from perron.data.sources import Source, find_file, read_source
from perron.data.split import DEFAULT_SPLIT, DEV_ALONE, part, shuffled
from perron.errors import SettingsError

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
