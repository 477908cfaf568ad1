"""Texts from the command line, standard input and files, as streams."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
from rich.progress import TextColumn, TimeElapsedColumn

from perron.cli.console import print_message, progress_bar
from perron.cli.options import CorpusOptions, TextOptions
from perron.cli.outputs import TableRow, open_writer
from perron.errors import InvalidRows, SettingsError
from perron.integrations.corpora.mapper import check_new_columns
from perron.pipeline import pair_mismatch
from perron.text.datasets import read_texts
from perron.text.formats import Columns, DataFile, Row, get_format, infer_format
from perron.text.formats.base import Lines, check_encoding
from perron.text.formats.rows import text_problem

CHUNK = 1024  # texts that are read, computed and written together


class Inputs(NamedTuple):
    """Some texts, the second texts of pairs, and the columns of their file."""

    texts: list[str]
    pairs: list[str] | None
    columns: list[TableRow]

    def shown(self) -> list[str]:
        """Return the texts as they are shown to the user."""
        if self.pairs is None:
            return self.texts
        return [" | ".join(pair) for pair in zip(self.texts, self.pairs, strict=True)]


@dataclass(frozen=True)
class TextSource:
    """Where texts come from.

    Attributes:
        options: Options of the command.
        text_pair: Column of the second text.
        is_pair: Whether texts come in pairs.
        typed: Texts as arguments of the command.
    """

    options: TextOptions
    text_pair: str | None
    is_pair: bool
    typed: Sequence[str] = ()

    def chunks(self, bad: InvalidRows) -> Iterator[Inputs]:
        """Yield the texts, never all of them at once, with the columns of the file."""
        rows = iter(self.rows(bad, keep_columns=True))
        while some := list(islice(rows, CHUNK)):
            yield Inputs(
                [row.text for row in some],
                [row.pair or "" for row in some] if self.is_pair else None,
                [self._columns(row) for row in some],
            )

    def _columns(self, row: Row) -> TableRow:
        if row.columns is not None:
            return row.columns
        pair = {"text_pair": row.pair} if self.is_pair else {}
        return {"text": row.text, **pair}

    def rows(self, bad: InvalidRows, keep_columns: bool = False) -> Iterable[Row]:
        """Return the texts one by one.

        Args:
            bad: Policy for rows that cannot be read.
            keep_columns: Keep all columns of a file.
        """
        file = self.options.file
        if self.typed and file is not None:
            raise SettingsError("give texts or --file, not both")
        if self.typed:
            return self._typed()
        if file is None and sys.stdin.isatty():
            raise SettingsError("give texts, or --file FILE, or standard input")
        if file in (None, "-"):
            return self._standard_input(bad)
        return self._from_file(str(file), bad, keep_columns)

    def schema(self) -> pa.Schema | None:
        """Return the types of the file's columns, if it has types."""
        file = self.options.file
        if self.typed or file in (None, "-"):
            return None
        format = get_format(self.options.data_format or infer_format(str(file)))
        return format.schema(format.open(DataFile(str(file))))

    def _typed(self) -> Iterator[Row]:
        rows = [Row(place, text, None) for place, text in enumerate(self.typed, 1)]
        for row in rows:
            if problem := text_problem(row):
                raise SettingsError(f"text must be UTF-8, got {row.text!r}: {problem}.")
        if not self.is_pair:
            yield from rows
            return
        if len(rows) % 2:
            fix = "Give texts two by two."
            raise SettingsError(pair_mismatch(takes_pairs=True, fix=fix))
        for first, second in zip(rows[::2], rows[1::2], strict=True):
            yield first._replace(pair=second.text)

    def _standard_input(self, bad: InvalidRows) -> Iterator[Row]:
        """Yield a text for each line; a tab separates the texts of a pair."""
        options = self.options
        if options.text or self.text_pair or options.data_format not in (None, "lines"):
            raise SettingsError(
                "--text, --text-pair and --data-format need --file FILE; standard "
                "input has one text per line."
            )
        encoding = check_encoding(options.encoding or "utf-8")
        stream = cast(BufferedIOBase, sys.stdin.buffer)
        lines = Lines(stream, "-", encoding)
        for line in lines:
            problem = lines.problem
            first, tab, second = line.partition("\t")
            row = Row(lines.count, line, None)
            if self.is_pair:
                row = Row(lines.count, first, None, second)
                if not tab:
                    fix = "Put a tab between the texts of a pair."
                    problem = problem or pair_mismatch(takes_pairs=True, fix=fix)
            problem = problem or text_problem(row)
            if problem is None:
                yield row
            else:
                bad.report("-", row.line, problem)

    def _from_file(
        self, file: str, bad: InvalidRows, keep_columns: bool
    ) -> Iterator[Row]:
        options = self.options
        if not self.is_pair and self.text_pair is not None:
            fix = "Leave out --text-pair."
            raise SettingsError(pair_mismatch(takes_pairs=False, fix=fix))
        pair = self.text_pair or ("text_pair" if self.is_pair else None)
        columns = Columns(text=options.text or "text", pair=pair, label=None)
        for row in read_texts(
            Path(file),
            options.data_format,
            columns,
            bad,
            options.encoding or "utf-8",
            keep_columns,
        ):
            if self.is_pair and row.pair is None:
                fix = f"{file} must be in a format with two columns of texts."
                raise SettingsError(pair_mismatch(takes_pairs=True, fix=fix))
            yield row


def counted(chunks: Iterable[Inputs], verb: str) -> Iterator[Inputs]:
    """Yield the chunks and show on standard error how many texts are done."""
    columns = (TextColumn("{task.completed:,} texts"), TimeElapsedColumn())
    with progress_bar(*columns, width=20) as bar:
        task = bar.add_task(verb, total=None)
        for chunk in chunks:
            yield chunk
            bar.update(task, advance=len(chunk.texts))


def stream(
    source: TextSource,
    compute: Callable[[Inputs], Mapping[str, Sequence[Any]]],
    results: Sequence[pa.Field],
    verb: str,
    options: CorpusOptions,
) -> None:
    """Read, compute and write, some texts at a time.

    Args:
        source: The texts.
        compute: Returns the columns of the results by name.
        results: Names and types of the results' columns.
        verb: What is done, for the progress bar.
        options: Options of the command.
    """
    bad, count = InvalidRows(options.skip_invalid), 0
    with open_writer(options.out, options.format, results, source.schema()) as output:
        for chunk in counted(source.chunks(bad), verb):
            for row in chunk.columns:
                check_new_columns(row, results)
            new = compute(chunk)
            output.write(
                [
                    {**own, **dict(zip(new, values, strict=True))}
                    for own, *values in zip(chunk.columns, *new.values(), strict=True)
                ]
            )
            count += len(chunk.texts)
    if options.out is not None:
        print_message(f"{count:,} row{'s' * (count != 1)} in {options.out}")
    print_skipped(bad)


def print_skipped(bad: InvalidRows) -> None:
    """Print how many rows were left out, if any."""
    if count := bad.skipped.total():
        print_message(f"left out {count} bad row{'s' if count > 1 else ''}")
