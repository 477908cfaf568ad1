"""What a person can mend: commands print these errors without a traceback."""

from pathlib import Path


class PerronError(Exception):
    """Something in the user's hands went wrong; the message says what to do."""


class SettingsError(PerronError, ValueError):
    """A setting, option or argument that makes no sense: the command was misused."""


class DataError(PerronError, ValueError):
    """A file, or a row of it, that cannot be used; names the file and the line."""

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
