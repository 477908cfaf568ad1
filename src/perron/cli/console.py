"""Console output: results go to standard output, messages to standard error."""

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

# Texts, labels and paths are printed verbatim, even if they contain [b] or :heart:.
messages = Console(
    stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True
)
results = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def is_main_process() -> bool:
    """Return whether this is the main process of a distributed launch."""
    return os.environ.get("RANK", "0") == "0"


def print_message(message: str) -> None:
    """Print a message to standard error."""
    messages.print(message)


def print_error(message: str) -> None:
    """Print an error message to standard error."""
    messages.print("error:", style="red", end=" ")
    messages.print(message)


def print_skipped(count: int, source: str = "") -> None:
    """Print the number of invalid rows that were skipped, if any.

    Args:
        count: Number of rows.
        source: Name of the file that contains the rows.
    """
    if count:
        prefix = f"{source}: " if source else ""
        print_message(f"{prefix}skipped {count:,} invalid row{'s' * (count != 1)}")


def is_interactive() -> bool:
    """Return whether standard error is an interactive terminal."""
    return messages.is_terminal and sys.stderr.isatty()


def progress_bar(*columns: "ProgressColumn", width: int = 30) -> "Progress":
    """Create a progress bar on standard error, hidden if that is not a terminal.

    Args:
        columns: Columns after the description of a task and its bar.
        width: Width of the bar in characters.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=width),
        *columns,
        console=messages,
        disable=not is_interactive(),
        transient=True,
    )
