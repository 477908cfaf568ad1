"""Records of runs: their results, and everything needed to get them again."""

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
from perron.files import digest, write_whole
from perron.migrations import from_table, stamp
from perron.training.run import Result, read_predictions

RECORD = "record.json"


@dataclass(frozen=True)
class Record:
    """A finished run.

    Attributes:
        command: Command that does the run again.
        variant: Variant of the study.
        point: Point of the study's grid.
        seed: Random seed.
        commit: Commit of Perron's source, or its version without one.
        data: Fingerprint of texts, labels and vocabulary.
        dev: Metrics of the best epoch on dev data, by name.
        test: Metrics of the same epoch on test data; None without test data.
        epochs: Number of epochs.
        best_epoch: Number of the best epoch, from 0.
        parameters: Number of trained parameters.
        epoch_seconds: Seconds of training per epoch, the median.
        graphs: The `GraphMeasure` of each level.
        tested: Digest of the true classes; runs on the same test texts share it.
        right: Whether each test example is correct, one bit each, as hexadecimal
            digits.
        tests: Number of test examples.
        data_bytes: Size of the data files; None if unknown.
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
        dev=result.dev,
        test=result.test,
        epochs=result.epochs,
        best_epoch=result.best_epoch,
        parameters=result.parameters,
        epoch_seconds=round(result.epoch_seconds, 3),
        graphs=result.graphs,
        tested=digest([expected.tobytes()])[:16],
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
    """Write the record of a run into its folder."""
    write_records(folder / RECORD, [record])


def read_records(path: Path) -> list[Record]:
    """Read a file with one record per line; no file has no records."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            table = json.loads(line)
        except ValueError as error:  # not UTF-8 either
            raise DataError(f"is not valid JSON: {error}", path, number) from error
        records.append(from_table(Record, "record", table, f"{path}, line {number}"))
    return records


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write one record per line."""
    lines = [json.dumps(stamp("record", asdict(record))) + "\n" for record in records]
    write_whole(path, "".join(lines).encode())
