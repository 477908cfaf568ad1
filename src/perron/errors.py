"""User-facing errors. Commands print them without a traceback."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_KEPT_PROBLEMS = 5


class PerronError(Exception):
    """Base class of errors that the user can fix; the message says how."""


class SettingsError(PerronError, ValueError):
    """An invalid setting, option or argument: the command was misused."""


class DataError(PerronError, ValueError):
    """A file, or a row of a file, that cannot be used."""

    def __init__(
        self, problem: str, path: str | Path | None = None, line: int | None = None
    ) -> None:
        place = "" if path is None else f"{path}: "
        if path is not None and line is not None:
            place = f"{path}, line {line}: "
        super().__init__(place + problem)
        self.problem = problem
        self.path = path
        self.line = line


def differences(before: object, now: object, key: str = "") -> list[str]:
    """Describe each value that differs between two nested mappings, for a message."""
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
    """What happens to rows that cannot be used: an error, or skipped and counted.

    Attributes:
        skipped: Number of bad rows of each file.
        dropped: Number of rows of each file that were left out for their label.
        problems: The first few messages, to show to the user.
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.skipped: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.problems: list[str] = []

    def report(self, path: str | Path, line: int | None, problem: str) -> None:
        """Raise a DataError or, if bad rows are skipped, count the row."""
        if not self.skip:
            advice = "Fix the file, or leave such rows out with --skip-invalid."
            raise DataError(f"{problem}. {advice}", path, line)
        self.skipped[str(path)] += 1
        if len(self.problems) < _KEPT_PROBLEMS:
            self.problems.append(str(DataError(problem, path, line)))
