"""``--engine ray``: a corpus of Parquet files through many workers."""

import os
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from perron.errors import SettingsError

Engine = Annotated[
    str | None,
    typer.Option(
        help="ray: a Parquet file, or a folder of them, through several workers to "
        "the folder --out. Run again, it goes on where it was stopped or killed.",
        rich_help_panel="Corpora",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes, each with a model [one for each processor].",
        rich_help_panel="Corpora",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="A Ray cluster, whose machines all see MODEL, --file and --out under "
        "the same names [RAY_ADDRESS, or this machine].",
        rich_help_panel="Corpora",
    ),
]
PieceRows = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Rows that are computed and written as one part, at most.",
        rich_help_panel="Corpora",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        help="Put before the names of new columns.", rich_help_panel="Corpora"
    ),
]


@dataclass(frozen=True)
class EngineOptions:
    """The options that are for an engine alone, as they were typed."""

    engine: str | None
    workers: int | None
    address: str | None
    piece_rows: int | None
    prefix: str | None

    def is_asked_for(self) -> bool:
        """Return if there is an engine; without, refuse the options for one."""
        if self.engine not in (None, "ray"):
            raise SettingsError(f"--engine {self.engine}: there is ray")
        if self.engine is not None:
            return True
        for name in ("workers", "address", "piece_rows", "prefix"):
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise SettingsError(f"--{option}: is for --engine ray")
        return False


@dataclass(frozen=True)
class CorpusJob:
    """What is computed of which files, as it was typed."""

    model: Path
    task: Literal["predict", "encode"]
    texts: list[str] | None
    file: str | None
    text: str | None
    text_pair: str | None
    data_format: str | None
    tokenised: bool
    format: str | None
    out: Path | None
    skip_bad: bool

    def places(self) -> tuple[Path, Path]:
        """Return what is read and where parts go; refuse what is no corpus."""
        if self.texts:
            raise SettingsError("--engine ray: takes no texts, but --file")
        if self.file in (None, "-"):
            raise SettingsError(
                "--engine ray: needs --file, a Parquet file or a folder of them"
            )
        for option in ("data_format", "format"):
            if getattr(self, option) not in (None, "parquet"):
                name = option.replace("_", "-")
                raise SettingsError(
                    f"--{name} {getattr(self, option)}: --engine ray reads and writes "
                    "Parquet"
                )
        if self.out is None or str(self.out) == "-":
            raise SettingsError("--engine ray: needs --out, a folder for the parts")
        if self.out.exists() and not self.out.is_dir():
            raise SettingsError(f"--out {self.out}: is a file; name a folder")
        return Path(str(self.file)), self.out

    def run(self, options: EngineOptions) -> None:
        """Compute it all, and say what came of it."""
        source, out = self.places()
        try:
            from perron.cli.engine_progress import EngineProgress
            from perron.integrations.corpora import TextMapper
            from perron.integrations.corpora.ray_engine import run_on_ray
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("perron"):
                raise
            missing = error.name.partition(".")[0]
            raise SettingsError(
                f"--engine ray needs {missing}: pip install 'perron[ray]'"
            ) from error
        mapper = TextMapper(
            self.model,
            self.task,
            self.text or "text",
            self.text_pair,
            tokenised=self.tokenised,
            prefix=options.prefix or "",
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
                piece_rows=options.piece_rows,
                skip_bad=self.skip_bad,
                watch=told,
            )
        told.end(outcome, out)
