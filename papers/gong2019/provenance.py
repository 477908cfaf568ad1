"""Trained models behind the figures, and placeholders for missing ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from papers.gong2019.workspace import COMMAND, Artifact, Workspace
from perron.experiments.records import RECORD, RunRecord, read_records, source_version
from perron.experiments.study import Trial
from perron.pipeline import Pipeline

VARIANT = "centrality"


@dataclass(frozen=True)
class TrainedModel:
    """A trained centrality model and the run that trained it.

    Attributes:
        pipeline: Trained model.
        trial: Settings of the run.
        record: Record of the run.
        folder: Folder of the run.
    """

    pipeline: Pipeline
    trial: Trial
    record: RunRecord
    folder: Path


def find_or_train(workspace: Workspace, name: str) -> TrainedModel | str:
    """Return a study's centrality model, training it if necessary.

    If that is not possible, return what is missing and how to get it.

    Args:
        workspace: Data, options and results.
        name: Name of the study.
    """
    if not _is_trained(workspace, name):
        if reason := workspace.missing(name):
            return reason
        if workspace.only_done:
            return (
                f"a trained {VARIANT} model of {name}. Leave out --only-done to train "
                "it"
            )
    pipeline, trial, record = workspace.model(name, VARIANT)
    folder = workspace.out / "runs" / name / trial.folder_name
    return TrainedModel(pipeline, trial, record, folder)


def _is_trained(workspace: Workspace, name: str) -> bool:
    trial = workspace.trial(name, VARIANT)
    records = read_records(workspace.out / "runs" / name / trial.folder_name / RECORD)
    return any(record.command == trial.command for record in records)


def origin(trained: TrainedModel) -> str:
    """Return Markdown with everything needed to reproduce the model."""
    record = trained.record
    return (
        f"The model was trained with\n\n```sh\n{trained.trial.command}\n```\n\n"
        f"(seed {record.seed}, commit {record.commit}, data fingerprint {record.data})."
        f" Its accuracy is {_accuracy(record)}. The results above were computed from "
        f"it at commit {source_version()}."
    )


def _accuracy(record: RunRecord) -> str:
    parts = {"dev": record.dev, "test": record.test}
    accuracies = [
        f"{100 * metrics['accuracy']:.1f} % on {part}"
        for part, metrics in parts.items()
        if metrics is not None
    ]
    return " and ".join(accuracies)


def missing_artifact(
    name: str, title: str, reason: str, columns: Sequence[str]
) -> Artifact:
    """Return a placeholder for an artifact that cannot be produced.

    Args:
        name: Name of the artifact.
        title: Title of the artifact.
        reason: What is missing and how to get it.
        columns: Columns of the CSV file.
    """
    text = f"Missing: {reason}. Then run `{COMMAND} {name}`.\n"
    return Artifact(name, title, text, [list(columns)], is_missing=True)
