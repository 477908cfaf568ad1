"""Being asked to stop: finish the batch, save, go."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from perron.errors import PerronError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(PerronError):
    """Training was asked to stop, and saved first."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; saved")
        self.number = number


class StopRequest:
    """Remembers the signal that came, if one did."""

    number: int = 0

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take a signal; a second one of the same kind is not held back."""
        self.number = number
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def held_back_signals() -> Iterator[StopRequest]:
    """Hold back SIGINT and SIGTERM inside the block, and tell of them.

    Python gives signals to the main thread alone; any other has none to hold back.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # A signal that is ignored, as in the background of a script, stays so.
    heard = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, request.note) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_by_term() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that what it began is ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
