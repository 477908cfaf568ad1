"""From many texts to many rows, piece by piece."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from perron.cli.console import say
from perron.cli.inputs import Inputs, Source, counted
from perron.cli.outputs import FORMATS, Row, writer
from perron.data.readers.rows import BadRows
from perron.data.settings import Format
from perron.errors import SettingsError
from perron.pipeline import Pipeline, load


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
