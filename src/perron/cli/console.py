"""Output of commands: results on standard output, the rest on standard error."""

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

# Texts, labels and paths are printed as they are: a [b] or a :heart: in them stays.
messages = Console(
    stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True
)
results = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def is_main_process() -> bool:
    """Return if this is the process that speaks, of those that a launcher started."""
    return os.environ.get("RANK", "0") == "0"


def print_message(text: str) -> None:
    """Tell the person at the terminal something."""
    messages.print(text)


def print_error(text: str) -> None:
    """Tell the person at the terminal what went wrong."""
    messages.print("error:", style="red", end=" ")
    messages.print(text)


def is_interactive() -> bool:
    """Return if someone sees a progress bar move."""
    return messages.is_terminal and sys.stderr.isatty()


def progress_bar(*columns: "ProgressColumn", width: int = 30) -> "Progress":
    """Return a progress bar on standard error, hidden unless that is a terminal.

    Args:
        columns: What follows the description of a task and its bar.
        width: Width of the bar, in characters.
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
