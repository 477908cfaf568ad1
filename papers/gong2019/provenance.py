"""Where the numbers of a figure come from, and what is said if they cannot be had."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from papers.gong2019.work import COMMAND, Piece, Work
from perron.experiments.records import RECORD, Record, read_records, source_version
from perron.experiments.study import Trial
from perron.pipeline import Pipeline

VARIANT = "centrality"


@dataclass(frozen=True)
class Trained:
    """A trained centrality model and how it came about.

    Attributes:
        pipeline: the model.
        trial: the run that trained it.
        record: of that run.
        folder: of that run.
    """

    pipeline: Pipeline
    trial: Trial
    record: Record
    folder: Path


def find_trained(work: Work, name: str) -> Trained | str:
    """Return a study's centrality model, trained now if need be; or what is missing.

    Args:
        work: where everything is.
        name: of the study.
    """
    if not _is_trained(work, name):
        if reason := work.missing(name):
            return reason
        if work.only_done:
            return f"{name}: no {VARIANT} model is trained yet, and none is to be"
    pipeline, trial, record = work.model(name, VARIANT)
    folder = work.out / "runs" / name / trial.folder
    return Trained(pipeline, trial, record, folder)


def _is_trained(work: Work, name: str) -> bool:
    trial = work.trial(name, VARIANT)
    records = read_records(work.out / "runs" / name / trial.folder / RECORD)
    return any(record.command == trial.command for record in records)


def origin(trained: Trained) -> str:
    """Return, as Markdown, all that is needed to get the model again."""
    record = trained.record
    return (
        f"The model was trained by\n\n```sh\n{trained.trial.command}\n```\n\n"
        f"with seed {record.seed}, commit {record.commit} and data of fingerprint "
        f"{record.data}; {_accuracy(record)}. This was made from it with commit "
        f"{source_version()}."
    )


def _accuracy(record: Record) -> str:
    parts = {"dev": record.dev, "test": record.test}
    accuracies = [
        f"{100 * metrics['accuracy']:.1f} % on {part}"
        for part, metrics in parts.items()
        if metrics is not None
    ]
    return f"its accuracy is {', '.join(accuracies)}"


def missing_piece(name: str, title: str, reason: str, columns: Sequence[str]) -> Piece:
    """Return what stands in the place of a piece that cannot be made.

    Args:
        name: of the piece.
        title: of the piece.
        reason: what is missing and how to get it.
        columns: of the CSV file.
    """
    text = f"Missing: {reason}. Then: `{COMMAND} {name}`\n"
    return Piece(name, title, text, [list(columns)], is_missing=True)
