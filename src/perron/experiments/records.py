"""Records of finished runs, and the remaining runs of a study."""

import json
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

import perron
from perron.errors import DataError
from perron.experiments.study import Study, Trial, all_trials
from perron.files import atomic_write, digest
from perron.migrations import from_table, stamp
from perron.training.run import Result, read_predictions

RECORD = "record.json"
RECORDS = "records.jsonl"
RECIPE = "recipe.toml"  # in the folder of a comparison: settings shared by all runs


@dataclass(frozen=True)
class RunRecord:
    """Record of a finished run.

    Attributes:
        command: Command that reproduces the run.
        variant: Name of the variant.
        point: Index of the grid point.
        seed: Random seed.
        commit: Commit of Perron's source, or its version if there is none.
        data: Fingerprint of texts, labels and vocabulary.
        dev: Metrics of the best epoch on dev data, by name.
        test: Metrics of the best epoch on test data; None without test data.
        epochs: Number of epochs.
        best_epoch: Best epoch, counted from 0.
        parameters: Number of trained parameters.
        epoch_seconds: Median training time per epoch.
        graphs: `GraphMeasure` of each pooling level.
        test_digest: Hash of the true classes, equal for runs on the same test data.
        correct: Whether each test example was classified correctly, one bit each, in
            hexadecimal.
        test_size: Number of test examples.
        data_bytes: Total size of the data files; None if unknown.
    """

    command: str
    variant: str
    point: int
    seed: int
    commit: str
    data: str
    dev: Mapping[str, float]
    test: Mapping[str, float] | None
    epochs: int
    best_epoch: int
    parameters: int
    epoch_seconds: float
    graphs: Sequence[Mapping[str, Any]]
    test_digest: str
    correct: str
    test_size: int
    data_bytes: int | None = None

    def correct_mask(self) -> Bool[np.ndarray, " n"]:
        """Return whether each test example was classified correctly."""
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(self.correct), np.uint8))
        return bits[: self.test_size].astype(bool)


def make_record(
    result: Result,
    folder: Path,
    command: str,
    variant: str,
    point: int,
    data_bytes: int | None,
) -> RunRecord:
    """Create the record of the run in a folder."""
    predicted = expected = np.empty(0, np.int64)
    if result.test is not None:
        predicted, expected = read_predictions(folder)
    return RunRecord(
        command=command,
        variant=variant,
        point=point,
        seed=result.seed,
        commit=source_version(),
        data=result.fingerprint[:16],
        dev=result.dev,
        test=result.test,
        epochs=result.epochs,
        best_epoch=result.best_epoch,
        parameters=result.parameters,
        epoch_seconds=round(result.epoch_seconds, 3),
        graphs=result.graphs,
        data_bytes=data_bytes,
        **outcome(predicted, expected),
    )


def outcome(
    predicted: Int[np.ndarray, " n"], expected: Int[np.ndarray, " n"]
) -> dict[str, Any]:
    """Return the fields of a record that describe the predictions for test data."""
    return {
        "test_digest": digest([expected.tobytes()])[:16],
        "correct": np.packbits(predicted == expected).tobytes().hex(),
        "test_size": len(expected),
    }


@cache
def source_version() -> str:
    """Return the commit of Perron's source, or its version if there is none.

    Uncommitted changes are marked with a trailing ``+``.
    """
    home = Path(perron.__file__).parent
    try:
        commit, changed, _ = (
            subprocess.run(
                ["git", "-C", str(home), *command],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for command in (
                ["rev-parse", "--short=12", "HEAD"],
                ["status", "--porcelain", "--", str(home)],
                # Fails if perron is installed inside another repository.
                ["ls-files", "--error-unmatch", "__init__.py"],
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return f"version {perron.__version__}"
    return commit + ("+" if changed else "")


def write_record(folder: Path, record: RunRecord) -> None:
    """Write the record of a run to its folder."""
    write_records(folder / RECORD, [record])


def read_records(path: Path) -> list[RunRecord]:
    """Read a file with one record per line; a missing file has no records."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            table = json.loads(line)
        except ValueError as error:  # includes invalid UTF-8
            raise DataError(f"is not valid JSON: {error}", path, number) from error
        records.append(from_table(RunRecord, "record", table, f"{path}, line {number}"))
    return records


def write_records(path: Path, records: Iterable[RunRecord]) -> None:
    """Write one record per line."""
    lines = [json.dumps(stamp("record", asdict(record))) + "\n" for record in records]
    atomic_write(path, "".join(lines).encode())


def study_records(study: Study, done: Mapping[str, RunRecord]) -> list[RunRecord]:
    """Return the records of the study's finished runs, in the order of the study.

    A run is identified by its command. The name of its variant and the index of its
    grid point may have changed since it was recorded.
    """
    return [
        replace(done[trial.command], variant=trial.variant, point=trial.point)
        for trial in required_trials(study, done)
        if trial.command in done
    ]


def finished_records(study: Study, folder: Path) -> list[RunRecord]:
    """Read the records of the study's finished runs, in the order of the study."""
    return study_records(study, find_records(study, folder))


def find_records(study: Study, folder: Path) -> dict[str, RunRecord]:
    """Read all records in the folder, including those of other settings, by command."""
    records = {
        record.command: record
        for record in read_study_records(folder / RECORDS, study, folder)
    }
    for trial in all_trials(study):
        for record in read_study_records(
            trial.run_folder(folder) / RECORD, study, folder
        ):
            if record.command == trial.command:
                records[record.command] = record
    return records


def read_study_records(path: Path, study: Study, folder: Path) -> list[RunRecord]:
    """Read records; update the recipe's path in their commands if it is in the folder.

    This allows a folder with its own recipe to be moved.
    """
    records = read_records(path)
    recipe = Path(study.recipe)
    if recipe != folder / RECIPE:
        return records
    updated = []
    for record in records:
        arguments = shlex.split(record.command)
        if Path(arguments[2]).name == RECIPE:
            arguments[2] = study.recipe
        updated.append(replace(record, command=shlex.join(arguments)))
    return updated


def required_trials(study: Study, done: Mapping[str, RunRecord]) -> list[Trial]:
    """Return the runs of a study that can be determined so far.

    The runs of a variant with other seeds are known once all of its grid points have
    been run.
    """
    best_points = {name: best_point(study, name, done) for name in study.variants}
    tuning = [
        Trial(study, name, point, 0)
        for point in range(len(study.grid))
        for name in study.variants
        if point < study.num_points(name)
    ]
    repetitions = [
        Trial(study, name, point, seed)
        for seed in range(1, max(map(study.num_seeds, study.variants)))
        for name, point in best_points.items()
        if point is not None and seed < study.num_seeds(name)
    ]
    return tuning + repetitions


def missing_trials(study: Study, done: Mapping[str, RunRecord]) -> list[Trial]:
    """Return the runs that have no record yet."""
    return [t for t in required_trials(study, done) if t.command not in done]


def best_point(study: Study, variant: str, done: Mapping[str, RunRecord]) -> int | None:
    """Return the grid point with the best dev accuracy; None if runs are missing."""
    records = [
        done.get(Trial(study, variant, point, 0).command)
        for point in range(study.num_points(variant))
    ]
    if any(record is None for record in records):
        return None
    dev = [record.dev["accuracy"] for record in records if record is not None]
    return dev.index(max(dev))  # the first in case of a tie


def csv_rows(records: Sequence[RunRecord]) -> list[list[str]]:
    """Return one row per run, with everything needed to reproduce it."""
    run = ("variant", "point", "seed")
    results = ("epochs", "best_epoch", "parameters", "epoch_seconds")
    origin = ("commit", "data", "command")
    graph = ("context_dependence", "second_eigenvalue")
    names = dict.fromkeys(name for record in records for name in record.dev)
    parts = [(part, name) for part in ("dev", "test") for name in names]
    metrics = [f"{part}_{name}" for part, name in parts]
    rows = [[*run, *metrics, *results, *origin, *graph]]
    for record in records:
        values = [(getattr(record, part) or {}).get(name, "") for part, name in parts]
        levels = [[f"{level[name]:.4f}" for level in record.graphs] for name in graph]
        rows.append(
            [
                *(str(getattr(record, name)) for name in run),
                *map(str, values),
                *(str(getattr(record, name)) for name in (*results, *origin)),
                *(" ".join(each) for each in levels),
            ]
        )
    return rows
