"""Texts in and rows out, as streams."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args, runtime_checkable

from rich.progress import TextColumn, TimeElapsedColumn

from perron.cli.console import progress_bar, say
from perron.errors import DataError, SettingsError
from perron.files import replaceable, take_name
from perron.pipeline import Pipeline, load
from perron.text.datasets import read_texts
from perron.text.formats import Columns
from perron.text.formats.rows import BadRows
from perron.text.settings import Format, format_of

CHUNK = 1024  # texts that are read, worked on and written together


class Inputs(NamedTuple):
    """Some texts, and the second texts of pairs."""

    texts: list[str]
    pairs: list[str] | None

    def shown(self) -> list[str]:
        """Return what a person needs to tell them apart."""
        if self.pairs is None:
            return self.texts
        return [" | ".join(pair) for pair in zip(self.texts, self.pairs, strict=True)]


@dataclass(frozen=True)
class Source:
    """Where texts come from, as it was typed."""

    texts: Sequence[str]
    file: str | None
    text: str | None
    text_pair: str | None
    is_pair: bool
    data_format: Format | None = None

    def chunks(self, bad: BadRows) -> Iterator[Inputs]:
        """Yield the texts, never all of them at once."""
        rows = iter(self.rows(bad))
        while some := list(islice(rows, CHUNK)):
            texts = [text for text, _ in some]
            yield Inputs(texts, [pair for _, pair in some] if self.is_pair else None)

    def rows(self, bad: BadRows) -> Iterable[tuple[str, str]]:
        """Return the texts one by one, each with its second text or an empty one."""
        if self.texts and self.file is not None:
            raise SettingsError("give texts or --file, not both")
        if self.texts:
            return self._typed()
        if self.file is None and sys.stdin.isatty():
            raise SettingsError("give texts, or --file FILE, or standard input")
        if self.file in (None, "-"):
            return self._standard_input(bad)
        return self._from_file(str(self.file), bad)

    def _typed(self) -> Iterable[tuple[str, str]]:
        for text in self.texts:
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise SettingsError(f"{text!r}: is no UTF-8") from error
        if not self.is_pair:
            return [(text, "") for text in self.texts]
        if len(self.texts) % 2:
            raise SettingsError("this model is for pairs: give texts two by two")
        return list(zip(self.texts[::2], self.texts[1::2], strict=True))

    def _standard_input(self, bad: BadRows) -> Iterator[tuple[str, str]]:
        """Yield a text for each line; the texts of a pair are parted by a tab."""
        if self.text or self.text_pair or self.data_format not in (None, "lines"):
            raise SettingsError(
                "standard input has a text a line: --text, --text-pair and "
                "--data-format are for --file FILE"
            )
        for number, raw in enumerate(sys.stdin.buffer, start=1):
            try:
                line = raw.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                bad.report("-", number, f"is no UTF-8 ({error})")
                continue
            first, tab, second = line.partition("\t")
            if not self.is_pair:
                yield line, ""
            elif tab:
                yield first, second
            else:
                problem = "this model is for pairs: a tab between their texts"
                bad.report("-", number, problem)

    def _from_file(self, file: str, bad: BadRows) -> Iterator[tuple[str, str]]:
        format = self.data_format or format_of(file)
        pair = self.text_pair or ("text_pair" if self.is_pair else None)
        if not self.is_pair and self.text_pair is not None:
            raise SettingsError("--text-pair: this model is for single texts")
        columns = Columns(text=self.text or "text", pair=pair, label=None)
        for row in read_texts(Path(file), format, columns, bad):
            if self.is_pair and row.pair is None:
                raise SettingsError(
                    f"{file}: this model is for pairs, and {format} has single texts"
                )
            yield row.text, row.pair or ""


def counted(chunks: Iterable[Inputs], verb: str) -> Iterator[Inputs]:
    """Yield the chunks and show on standard error how many texts are done."""
    columns = (TextColumn("{task.completed:,} texts"), TimeElapsedColumn())
    with progress_bar(*columns, width=20) as bar:
        task = bar.add_task(verb, total=None)
        for chunk in chunks:
            yield chunk
            bar.update(task, advance=len(chunk.texts))


FORMATS = ("jsonl", "csv", "parquet")
Row = Mapping[str, Any]

_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}


@runtime_checkable
class TextSink(Protocol):
    """What text can be written to."""

    def write(self, text: str, /) -> object:
        """Take some text."""

    def flush(self) -> object:
        """Pass on what was taken."""


@runtime_checkable
class Writer(Protocol):
    """Writes rows that all have the same columns."""

    def write(self, rows: Sequence[Row]) -> None:
        """Write some rows."""


class JsonLines:
    """An object a line."""

    def __init__(self, file: TextSink) -> None:
        self._file = file

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()


class Csv:
    """Columns by name; what a row nests gets a column for each part."""

    def __init__(self, file: TextSink) -> None:
        self._writer = csv.writer(file)
        self._begun = False

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            flat = _flattened(row)
            if not self._begun:
                self._writer.writerow(flat)
                self._begun = True
            self._writer.writerow(flat.values())


class Parquet:
    """A file that is read by column; needs a name, as it cannot be a stream."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, rows: Sequence[Row]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pylist([dict(row) for row in rows])
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Finish the file; without a row it has no columns, but is a Parquet file."""
        if self._writer is None:
            self.write([])
        self._writer.close()


def _flattened(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": part for name, part in value.items()}
        elif isinstance(value, list):
            flat |= {f"{key}.{place}": part for place, part in enumerate(value)}
        else:
            flat[key] = value
    return flat


def refuse_dash(out: Path | None) -> None:
    """Refuse what elsewhere means standard output, and here would be a file."""
    if str(out) == "-":
        raise SettingsError("--out -: for standard output, leave out --out")


@contextmanager
def writer(out: Path | None, format: str | None) -> Iterator[Writer]:
    """Give a writer to a file, or to standard output.

    A file is written under a temporary name and gets its own at the end: it is whole
    or, if something went wrong, not there.
    """
    refuse_dash(out)
    chosen = format or ("jsonl" if out is None else _BY_SUFFIX.get(out.suffix.lower()))
    if chosen is None:
        raise SettingsError(
            f"--out {out}: its name does not tell the format; say --format jsonl, csv "
            "or parquet"
        )
    if out is None:
        if chosen == "parquet":
            raise SettingsError("--format parquet: needs a file, --out FILE")
        yield JsonLines(sys.stdout) if chosen == "jsonl" else Csv(sys.stdout)
        sys.stdout.flush()
        return
    out = replaceable(out)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        if chosen == "parquet":
            made = Parquet(part)
            yield made
            made.close()
        else:
            with part.open("w", encoding="utf-8", newline="") as file:
                yield JsonLines(file) if chosen == "jsonl" else Csv(file)
        take_name(part, out)
    except OSError as error:
        raise DataError(f"could not be written ({error.strerror})", out) from error
    finally:
        part.unlink(missing_ok=True)


def as_format(name: str | None) -> Format | None:
    """Return the format of that name."""
    if name is None or name in get_args(Format):
        return name  # type: ignore[return-value]
    raise SettingsError(
        f"--data-format {name}: is one of {', '.join(get_args(Format))}"
    )


def load_for(model: Path, tokenised: bool) -> Pipeline:
    """Load a model for texts as they are typed, or for tokenised ones."""
    return reading(load(model), tokenised)


def reading(loaded: Pipeline, tokenised: bool) -> Pipeline:
    """Return the same model for texts as they are typed, or for tokenised ones."""
    if not tokenised:
        return loaded
    word_ids = loaded.word_ids.reading(True, loaded.word_ids.sentence_mark)
    return Pipeline(loaded.model, word_ids, loaded.name)


def stream(
    source: Source,
    compute: Callable[[Inputs], Sequence[Row]],
    verb: str,
    out: Path | None,
    format: str | None,
    skip_bad: bool,
) -> None:
    """Read, compute and write; never more than some texts at a time."""
    if format is not None and format not in FORMATS:
        raise SettingsError(f"--format {format}: is one of {', '.join(FORMATS)}")
    bad, count = BadRows(skip_bad), 0
    with writer(out, format) as output:
        for chunk in counted(source.chunks(bad), verb):
            output.write(compute(chunk))
            count += len(chunk.texts)
    if out is not None:
        say(f"{count:,} row{'s' * (count != 1)} in {out}")
    say_skipped(bad)


def say_skipped(bad: BadRows) -> None:
    """Tell how many rows were left out, if any."""
    if count := bad.skipped.total():
        say(f"left out {count} bad row{'s' if count > 1 else ''}")
