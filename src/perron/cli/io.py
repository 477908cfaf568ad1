"""Streaming input from the command line, standard input and files."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from perron.cli.console import print_message, print_skipped, progress_bar
from perron.cli.options import CorpusOptions, TextOptions
from perron.errors import InvalidRows, SettingsError
from perron.kernels import wait_for_compiled
from perron.pipeline import pair_mismatch
from perron.text.formats import Columns, DataFile, Row, get_format, infer_format
from perron.text.formats.base import Lines, check_encoding
from perron.text.formats.rows import text_problem

if TYPE_CHECKING:
    import pyarrow as pa

    from perron.cli.outputs import TableRow

CHUNK = 1024  # texts that are read, processed and written together


class Inputs(NamedTuple):
    """A chunk of texts.

    Attributes:
        texts: Texts, or first texts of pairs.
        pairs: Second texts of pairs; None for single texts.
        columns: Row of the input file for each text.
    """

    texts: list[str]
    pairs: list[str] | None
    columns: list["TableRow"]

    def display_texts(self) -> list[str]:
        """Return the texts for display, with pairs joined into one string."""
        if self.pairs is None:
            return self.texts
        return [" | ".join(pair) for pair in zip(self.texts, self.pairs, strict=True)]


@dataclass(frozen=True)
class TextSource:
    """Source of texts: arguments, a file, or standard input.

    Attributes:
        options: Options of the command.
        text_pair: Column of the second text.
        is_pair: Whether the model classifies pairs of texts.
        arguments: Texts given as arguments.
    """

    options: TextOptions
    text_pair: str | None
    is_pair: bool
    arguments: Sequence[str] = ()

    def chunks(self, invalid: InvalidRows) -> Iterator[Inputs]:
        """Yield the texts in chunks, with the columns of the file."""
        rows = iter(self.rows(invalid, keep_columns=True))
        while chunk := list(islice(rows, CHUNK)):
            yield Inputs(
                [row.text for row in chunk],
                [row.pair or "" for row in chunk] if self.is_pair else None,
                [self._columns(row) for row in chunk],
            )

    def _columns(self, row: Row) -> "TableRow":
        if row.columns is not None:
            return row.columns
        pair = {"text_pair": row.pair} if self.is_pair else {}
        return {"text": row.text, **pair}

    def rows(self, invalid: InvalidRows, keep_columns: bool = False) -> Iterable[Row]:
        """Return an iterable over the texts.

        Args:
            invalid: Policy for invalid rows.
            keep_columns: Whether to keep all columns of a file.
        """
        file = self.options.file
        if self.arguments and file is not None:
            raise SettingsError("texts and --file are mutually exclusive. Remove one.")
        if self.arguments:
            return self._from_arguments()
        if file is None and sys.stdin.isatty():
            raise SettingsError(
                "no texts. Pass texts as arguments, in a file with --file FILE, or on "
                "standard input."
            )
        if file in (None, "-"):
            return self._from_standard_input(invalid)
        return self._from_file(str(file), invalid, keep_columns)

    def schema(self) -> "pa.Schema | None":
        """Return the schema of the file, or None if its columns have no types."""
        file = self.options.file
        if self.arguments or file in (None, "-"):
            return None
        format = get_format(self.options.data_format or infer_format(str(file)))
        return format.schema(format.open(DataFile(str(file))))

    def _from_arguments(self) -> Iterator[Row]:
        rows = [Row(index, text, None) for index, text in enumerate(self.arguments, 1)]
        for row in rows:
            if problem := text_problem(row):
                raise SettingsError(f"text must be UTF-8, got {row.text!r}: {problem}.")
        if not self.is_pair:
            yield from rows
            return
        if len(rows) % 2:
            fix = "Pass an even number of texts."
            raise SettingsError(pair_mismatch(expects_pairs=True, fix=fix))
        for first, second in zip(rows[::2], rows[1::2], strict=True):
            yield first._replace(pair=second.text)

    def _from_standard_input(self, invalid: InvalidRows) -> Iterator[Row]:
        """Yield one row per line; a tab separates the texts of a pair."""
        options = self.options
        if options.text or self.text_pair or options.data_format not in (None, "lines"):
            raise SettingsError(
                "--text, --text-pair and --data-format require --file FILE. Standard "
                "input must have one text per line."
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
                    problem = problem or pair_mismatch(expects_pairs=True, fix=fix)
            problem = problem or text_problem(row)
            if problem is None:
                yield row
            else:
                invalid.report("-", row.line, problem)

    def _from_file(
        self, file: str, invalid: InvalidRows, keep_columns: bool
    ) -> Iterator[Row]:
        from perron.text.datasets import read_texts

        options = self.options
        if not self.is_pair and self.text_pair is not None:
            fix = "Remove --text-pair."
            raise SettingsError(pair_mismatch(expects_pairs=False, fix=fix))
        pair = self.text_pair or ("text_pair" if self.is_pair else None)
        columns = Columns(text=options.text or "text", pair=pair, label=None)
        for row in read_texts(
            Path(file),
            options.data_format,
            columns,
            invalid,
            options.encoding or "utf-8",
            keep_columns,
        ):
            if self.is_pair and row.pair is None:
                fix = f"{file} must have two columns of texts."
                raise SettingsError(pair_mismatch(expects_pairs=True, fix=fix))
            yield row


def with_progress(chunks: Iterable[Inputs], verb: str) -> Iterator[Inputs]:
    """Yield the chunks, with a progress bar on standard error."""
    from rich.progress import TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.completed:,} texts"), TimeElapsedColumn())
    with progress_bar(*columns, width=20) as bar:
        task = bar.add_task(verb, total=None)
        for chunk in chunks:
            yield chunk
            bar.update(task, advance=len(chunk.texts))


def stream(
    source: TextSource,
    compute: Callable[[Inputs], Mapping[str, Sequence[Any]]],
    results: Sequence["pa.Field"],
    verb: str,
    options: CorpusOptions,
) -> None:
    """Read, process and write texts chunk by chunk.

    Args:
        source: Source of the texts.
        compute: Function that returns the result columns of a chunk, by name.
        results: Fields of the result columns.
        verb: Description for the progress bar.
        options: Options of the command.
    """
    from perron.cli.outputs import open_writer
    from perron.integrations.corpora.mapper import check_new_columns

    if options.file is not None:
        wait_for_compiled()  # so that a file gets the same results each time
    invalid, count = InvalidRows(options.skip_invalid), 0
    with open_writer(options.out, options.format, results, source.schema()) as output:
        for chunk in with_progress(source.chunks(invalid), verb):
            for row in chunk.columns:
                check_new_columns(row, results)
            new = compute(chunk)
            output.write(
                [
                    {**row, **dict(zip(new, values, strict=True))}
                    for row, *values in zip(chunk.columns, *new.values(), strict=True)
                ]
            )
            count += len(chunk.texts)
    if options.out is not None:
        print_message(f"Saved {count:,} row{'s' * (count != 1)} to {options.out}")
    print_skipped(invalid.skipped.total())
