"""Where commands speak: results to standard output, the rest to standard error."""

import os
import sys

from rich.console import Console

messages = Console(stderr=True, highlight=False, soft_wrap=True)
results = Console(highlight=False, soft_wrap=True)


def is_first() -> bool:
    """Return if this is the process that speaks, of those that a launcher started."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """Tell the person at the terminal something."""
    messages.print(text)


def is_watched() -> bool:
    """Return if someone sees a progress bar move."""
    return messages.is_terminal and sys.stderr.isatty()
