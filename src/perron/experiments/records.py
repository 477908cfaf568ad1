"""What is kept of a run: its numbers, and all that is needed to get them again."""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

import perron
from perron.errors import DataError
from perron.files import write_whole
from perron.training.run import Result, read_predictions

RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """A run that is over.

    Attributes:
        command: that does it again.
        variant: of the study.
        point: of the study's grid.
        seed: of the run.
        commit: of Perron's source; its version where there is no source.
        data: fingerprint of texts, labels and vocabulary.
        dev: accuracy of the best epoch.
        test: of the same epoch, on test data; None without.
        epochs: that were trained.
        best_epoch: the one kept, from 0.
        parameters: how many numbers were learnt.
        epoch_seconds: of training, the median of the epochs.
        graphs: see `GraphMeasure`.
        tested: digest of the right answers; runs that share it share test texts.
        right: which test examples were right, a bit each, as hexadecimal digits.
        tests: how many test examples there are.
        data_bytes: of the files of data; None if that was not kept, or for the hub.
    """

    command: str
    variant: str
    point: int
    seed: int
    commit: str
    data: str
    dev: float
    test: float | None
    epochs: int
    best_epoch: int
    parameters: int
    epoch_seconds: float
    graphs: Sequence[Mapping[str, Any]]
    tested: str
    right: str
    tests: int
    data_bytes: int | None = None

    def answers(self) -> Bool[np.ndarray, " n"]:
        """Return which test examples were right."""
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(self.right), np.uint8))
        return bits[: self.tests].astype(bool)


def record_of(
    result: Result,
    folder: Path,
    command: str,
    variant: str,
    point: int,
    data_bytes: int | None,
) -> Record:
    """Return the record of the run in a folder."""
    predicted = expected = np.empty(0, np.int64)
    if result.test is not None:
        predicted, expected = read_predictions(folder)
    right = np.packbits(predicted == expected).tobytes().hex()
    return Record(
        command=command,
        variant=variant,
        point=point,
        seed=result.seed,
        commit=source_version(),
        data=result.fingerprint[:16],
        dev=result.dev["accuracy"],
        test=None if result.test is None else result.test["accuracy"],
        epochs=result.epochs,
        best_epoch=result.best_epoch,
        parameters=result.parameters,
        epoch_seconds=round(result.epoch_seconds, 3),
        graphs=result.graphs,
        tested=hashlib.sha256(expected.tobytes()).hexdigest()[:16],
        right=right,
        tests=len(expected),
        data_bytes=data_bytes,
    )


@cache
def source_version() -> str:
    """Return the commit of Perron's source, ``+`` if it was changed; or its version."""
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
                # Fails where this is installed inside a repository of something else.
                ["ls-files", "--error-unmatch", "__init__.py"],
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return f"version {perron.__version__}"
    return commit + ("+" if changed else "")


def write_record(folder: Path, record: Record) -> None:
    """Keep the record in its run's folder."""
    write_whole(folder / RECORD, (json.dumps(asdict(record)) + "\n").encode())


def read_records(path: Path) -> list[Record]:
    """Read a file of records, one a line; none if there is no file."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            records.append(Record(**json.loads(line)))
        except (ValueError, TypeError) as error:  # no JSON, no UTF-8, other fields
            raise DataError(f"is no record of a run ({error})", path, number) from error
    return records


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write records, one a line."""
    lines = [json.dumps(asdict(record)) + "\n" for record in records]
    write_whole(path, "".join(lines).encode())
