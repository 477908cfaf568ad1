"""``--engine ray``: parallel processing of Parquet files."""

import os
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from perron.cli.console import (
    is_interactive,
    print_message,
    print_skipped,
    progress_bar,
)
from perron.cli.options import CorpusOptions
from perron.errors import SettingsError, needs_extra

if TYPE_CHECKING:
    from perron.integrations.corpora.ray_engine import CorpusProgress, JobResult

_PANEL = "Large corpora"
_LOG_SECONDS = 60  # between messages if there is no progress bar


@dataclass(frozen=True)
class EngineOptions:
    """Options for parallel processing."""

    engine: Annotated[
        str | None,
        typer.Option(
            help="Set to ray to process a Parquet file, or a folder of them, with "
            "several workers. Results are written to the folder --out. To resume an "
            "interrupted job, run the same command again.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of worker processes, each with its own copy of the model. "
            "Defaults to the number of CPUs.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of a Ray cluster. All nodes must have access to MODEL, "
            "--file and --out under the same paths. Defaults to RAY_ADDRESS, or to "
            "this machine.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    shard_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of rows per shard. Each shard is written as one part.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def is_selected(self) -> bool:
        """Return whether an engine is selected; if not, reject its options."""
        if self.engine not in (None, "ray"):
            raise SettingsError(f"--engine must be ray, got {self.engine}.")
        if self.engine is not None:
            return True
        for name in ("workers", "address", "shard_rows"):
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise SettingsError(f"--{option} requires --engine ray.")
        return False


@dataclass(frozen=True)
class CorpusJob:
    """A job that predicts or encodes the texts of a corpus.

    Attributes:
        task: ``predict`` or ``encode``.
        corpus: Options of the command.
        text_pair: Column of the second text, for pair models.
    """

    task: Literal["predict", "encode"]
    corpus: CorpusOptions
    text_pair: str | None = None

    def paths(self) -> tuple[Path, Path]:
        """Return the source and the output folder; reject unsupported options."""
        corpus = self.corpus
        if corpus.texts:
            raise SettingsError(
                "--engine ray does not accept texts as arguments. Use --file."
            )
        if corpus.file in (None, "-"):
            raise SettingsError(
                "--engine ray requires --file with a Parquet file or a folder of "
                "Parquet files."
            )
        if corpus.encoding is not None:
            raise SettingsError(
                "--encoding applies to text files, but --engine ray reads Parquet. "
                "Remove --encoding."
            )
        for option in ("data_format", "format"):
            if getattr(corpus, option) not in (None, "parquet"):
                name = option.replace("_", "-")
                raise SettingsError(
                    f"--{name} must be parquet with --engine ray, got "
                    f"{getattr(corpus, option)}."
                )
        if corpus.out is None or str(corpus.out) == "-":
            raise SettingsError(
                "--engine ray requires --out with a folder for the results."
            )
        if corpus.out.exists() and not corpus.out.is_dir():
            raise SettingsError(
                f"--out must be a folder with --engine ray, got the file {corpus.out}."
            )
        return Path(str(corpus.file)), corpus.out

    def run(self, options: EngineOptions) -> None:
        """Process the corpus and print a summary."""
        source, out = self.paths()
        with needs_extra("ray", "--engine ray"):
            from perron.integrations.corpora import TextMapper
            from perron.integrations.corpora.ray_engine import run_on_ray
        mapper = TextMapper(
            self.corpus.model,
            self.task,
            self.corpus.text or "text",
            self.text_pair,
            pretokenized=self.corpus.pretokenized,
            prefix=self.corpus.prefix,
        )
        # Ray reports on standard output how it handles workers that died.
        with (
            open(os.devnull, "w") as devnull,
            redirect_stdout(devnull),
            EngineProgress() as progress,
        ):
            result = run_on_ray(
                mapper,
                source,
                out,
                workers=options.workers,
                address=options.address,
                shard_rows=options.shard_rows,
                skip_invalid=self.corpus.skip_invalid,
                on_progress=progress,
            )
        progress.print_summary(result, out)


class EngineProgress:
    """Progress of a job: a bar on a terminal, otherwise one message per minute."""

    def __init__(self) -> None:
        from rich.progress import TextColumn, TimeRemainingColumn

        self._bar = progress_bar(
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(compact=True),
            width=20,
        )
        self._task = self._bar.add_task("starting workers", total=None, status="")
        self._start = self._last_message = time.monotonic()
        self._rows = 0

    def __enter__(self) -> "EngineProgress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            print_message("Stopped. Run the same command again to resume.")

    def __call__(self, progress: "CorpusProgress") -> None:
        now = time.monotonic()
        self._rows = progress.rows
        status = (
            f"{progress.shards_done:,} of {progress.total_shards:,} shards, "
            f"{progress.rows:,} new rows, {self._speed(now)}"
        )
        self._bar.update(
            self._task,
            description="computing",
            completed=progress.shards_done,
            total=progress.total_shards,
            status=status,
        )
        if not is_interactive() and now - self._last_message > _LOG_SECONDS:
            self._last_message = now
            print_message(status)

    def _speed(self, now: float) -> str:
        return f"{self._rows / max(now - self._start, 1e-9):,.0f} rows/s"

    def print_summary(self, result: "JobResult", out: Path) -> None:
        """Print the size and speed of a finished job."""
        existing = result.shards - result.computed_shards
        speed = f", {self._speed(time.monotonic())}" if result.computed_shards else ""
        print_message(
            f"{result.rows:,} rows in {result.shards:,} "
            f"part{'s' * (result.shards != 1)} in {out}"
            + (f" ({existing:,} already existed){speed}" if existing else speed)
        )
        print_skipped(result.skipped_rows)
