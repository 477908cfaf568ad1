"""Console output: results go to standard output, messages to standard error."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

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


MAX_CONFUSION_CLASSES = 12  # larger matrices are hard to read
MAX_CONFUSED_PAIRS = 10


def confusion_table(
    labels: Sequence[str],
    confusion: Sequence[Sequence[int]],
    width: int | None = None,
) -> Table:
    """Return a confusion matrix or, for many classes, the most frequent confusions.

    Args:
        labels: Names of the classes.
        confusion: Number of texts per true class (row) and predicted class.
        width: Characters per line. If the names of the classes do not fit, the columns
            have numbers instead. Defaults to the width of the terminal.
    """
    if len(labels) > MAX_CONFUSION_CLASSES:
        return _confused_pairs(labels, confusion)
    rows = [[str(count) for count in row] for row in confusion]
    head, names, columns = "true \\ predicted", list(labels), list(labels)
    widest = max(len(head), *map(len, names))
    cells = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    if 4 + widest + sum(3 + cell for cell in cells) > (width or results.width):
        columns = [f"({number})" for number in range(1, len(labels) + 1)]
        names = [" ".join(pair) for pair in zip(names, columns, strict=True)]
    table = Table(head)
    for column in columns:
        table.add_column(column, justify="right")
    for index, (name, row) in enumerate(zip(names, rows, strict=True)):
        bold = [Text(cell, "bold" * (i == index)) for i, cell in enumerate(row)]
        table.add_row(name, *bold)
    return table


def _confused_pairs(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> Table:
    pairs = [
        (count, true, predicted)
        for true, row in enumerate(confusion)
        for predicted, count in enumerate(row)
        if true != predicted and count
    ]
    pairs.sort(key=lambda pair: -pair[0])
    table = Table("true", "predicted", title="most frequent confusions")
    table.add_column("texts", justify="right")
    table.add_column("of the class", justify="right")
    for count, true, predicted in pairs[:MAX_CONFUSED_PAIRS]:
        share = f"{100 * count / sum(confusion[true]):.1f} %"
        table.add_row(labels[true], labels[predicted], str(count), share)
    return table
