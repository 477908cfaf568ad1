"""``--engine ray``: a corpus of Parquet files through many workers."""

import os
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from perron.cli.console import is_interactive, print_message, progress_bar
from perron.cli.options import CorpusOptions, needs_extra
from perron.errors import SettingsError

if TYPE_CHECKING:
    from perron.integrations.corpora.ray_engine import CorpusProgress, JobResult

_PANEL = "Corpora"
_SECONDS = 60  # between two lines, where there is no bar


@dataclass(frozen=True)
class EngineOptions:
    """Options that only an engine uses."""

    engine: Annotated[
        str | None,
        typer.Option(
            help="ray: process a Parquet file, or a folder of them, with several "
            "workers, and write to the folder --out. Run again, it resumes where it "
            "was stopped or killed.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes, each with a model. Defaults to one per processor.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            help="A Ray cluster, whose machines all see MODEL, --file and --out under "
            "the same names. Defaults to RAY_ADDRESS, or to this machine.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    shard_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of rows that are computed and written as one part.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def is_selected(self) -> bool:
        """Return if there is an engine; without, refuse the options for one."""
        if self.engine not in (None, "ray"):
            raise SettingsError(f"--engine {self.engine}: there is ray")
        if self.engine is not None:
            return True
        for name in ("workers", "address", "shard_rows"):
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise SettingsError(f"--{option}: is for --engine ray")
        return False


@dataclass(frozen=True)
class CorpusJob:
    """What is computed, from which files."""

    task: Literal["predict", "encode"]
    corpus: CorpusOptions
    text_pair: str | None = None

    def places(self) -> tuple[Path, Path]:
        """Return what is read and where parts go; refuse what is no corpus."""
        corpus = self.corpus
        if corpus.texts:
            raise SettingsError("--engine ray takes no texts. Use --file.")
        if corpus.file in (None, "-"):
            raise SettingsError(
                "--engine ray needs --file, a Parquet file or a folder of them"
            )
        if corpus.encoding is not None:
            raise SettingsError(
                "--encoding is for text files: --engine ray reads Parquet"
            )
        for option in ("data_format", "format"):
            if getattr(corpus, option) not in (None, "parquet"):
                name = option.replace("_", "-")
                raise SettingsError(
                    f"--{name} {getattr(corpus, option)}: --engine ray reads and "
                    "writes Parquet"
                )
        if corpus.out is None or str(corpus.out) == "-":
            raise SettingsError("--engine ray needs --out, a folder for the parts")
        if corpus.out.exists() and not corpus.out.is_dir():
            raise SettingsError(f"--out {corpus.out}: is a file. Name a folder.")
        return Path(str(corpus.file)), corpus.out

    def run(self, options: EngineOptions) -> None:
        """Compute it all, and say what came of it."""
        source, out = self.places()
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
        # Ray tells on standard output what it does about workers that died.
        with (
            open(os.devnull, "w") as nowhere,
            redirect_stdout(nowhere),
            EngineProgress() as told,
        ):
            outcome = run_on_ray(
                mapper,
                source,
                out,
                workers=options.workers,
                address=options.address,
                shard_rows=options.shard_rows,
                skip_invalid=self.corpus.skip_invalid,
                on_progress=told,
            )
        told.end(outcome, out)


class EngineProgress:
    """Progress of a run: a bar on a terminal, else one line per minute."""

    def __init__(self) -> None:
        from rich.progress import TextColumn, TimeRemainingColumn

        self._bar = progress_bar(
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(compact=True),
            width=20,
        )
        self._task = self._bar.add_task("starting workers", total=None, told="")
        self._begin = self._last = time.monotonic()
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
            print_message("stopped; the same command goes on with the rest")

    def __call__(self, progress: "CorpusProgress") -> None:
        now = time.monotonic()
        self._rows = progress.rows
        told = (
            f"{progress.shards_done:,} of {progress.total_shards:,} shards, "
            f"{progress.rows:,} rows now, {self._speed(now)}"
        )
        self._bar.update(
            self._task,
            description="computing",
            completed=progress.shards_done,
            total=progress.total_shards,
            told=told,
        )
        if not is_interactive() and now - self._last > _SECONDS:
            self._last = now
            print_message(told)

    def _speed(self, now: float) -> str:
        return f"{self._rows / max(now - self._begin, 1e-9):,.0f} rows/s"

    def end(self, outcome: "JobResult", out: Path) -> None:
        """Say what came of it."""
        there = outcome.shards - outcome.computed_shards
        speed = f", {self._speed(time.monotonic())}" if outcome.computed_shards else ""
        print_message(
            f"{outcome.rows:,} rows in {outcome.shards:,} "
            f"part{'s' * (outcome.shards != 1)} in {out}"
            + (f" ({there:,} of them were there){speed}" if there else speed)
        )
        if outcome.skipped_rows:
            rows = "row" if outcome.skipped_rows == 1 else "rows"
            print_message(f"left out {outcome.skipped_rows:,} bad {rows}")
