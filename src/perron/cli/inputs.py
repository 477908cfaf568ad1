"""Texts to work on: typed, from a file, or from standard input."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from perron.cli.console import is_watched, messages
from perron.data.load import read_texts
from perron.data.readers import Columns
from perron.data.readers.rows import BadRows
from perron.data.settings import Format, format_of
from perron.errors import SettingsError

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
    with Progress(
        TextColumn(verb),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:,} texts"),
        TimeElapsedColumn(),
        console=messages,
        disable=not is_watched(),
        transient=True,
    ) as bar:
        task = bar.add_task(verb, total=None)
        for chunk in chunks:
            yield chunk
            bar.update(task, advance=len(chunk.texts))
