"""User-facing errors, which commands print without a traceback."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_MAX_PROBLEMS = 5


class PerronError(Exception):
    """Base class for errors that the user can fix; the message says how."""


class SettingsError(PerronError, ValueError):
    """Invalid setting, option or argument."""


class DataError(PerronError, ValueError):
    """File, or row of a file, that cannot be used.

    Attributes:
        problem: What is wrong.
        path: Path of the file.
        line: Line number in the file, from 1.
    """

    def __init__(
        self, problem: str, path: str | Path | None = None, line: int | None = None
    ) -> None:
        prefix = "" if path is None else f"{path}: "
        if path is not None and line is not None:
            prefix = f"{path}, line {line}: "
        super().__init__(prefix + problem)
        self.problem = problem
        self.path = path
        self.line = line


def differences(before: object, now: object, key: str = "") -> list[str]:
    """Return a message for each value that differs between two nested mappings."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return [
            line
            for name in dict.fromkeys([*before, *now])
            for line in differences(
                before.get(name), now.get(name), f"{key}.{name}" if key else str(name)
            )
        ]
    return [] if before == now else [f"{key} was {before!r}, is {now!r}"]


class InvalidRows:
    """Handler for invalid rows, which raises an error or skips and counts them.

    Attributes:
        skip: Whether to skip invalid rows.
        skipped: Number of invalid rows per file.
        dropped: Number of rows per file that were dropped because of their label.
        problems: First few error messages, to show to the user.
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.skipped: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.problems: list[str] = []

    def report(self, path: str | Path, line: int | None, problem: str) -> None:
        """Raise a DataError, or count the row if invalid rows are skipped."""
        if not self.skip:
            advice = "Fix the file, or skip such rows with --skip-invalid."
            raise DataError(f"{problem}. {advice}", path, line)
        self.skipped[str(path)] += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(str(DataError(problem, path, line)))
