"""The process that trains: its devices, and the signals that stop it."""

import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
from accelerate.utils import ProjectConfiguration
from torch import Tensor, nn

from perron.errors import PerronError, SettingsError


class SingleDevice:
    """The part of accelerate's `Accelerator` that `Loop` uses, for one device.

    An `Accelerator` keeps its state globally and takes part in a distributed launch. A
    loop that runs inside someone else's program must do neither.
    """

    process_index, num_processes, is_main_process = 0, 1, True

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)

    def prepare(self, *objects: Any) -> Any:
        return objects

    def unwrap_model(self, model: Any) -> Any:
        return model

    def autocast(self) -> AbstractContextManager[None]:
        return nullcontext()

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def clip_grad_norm_(self, parameters: Iterable[Tensor], limit: float) -> None:
        nn.utils.clip_grad_norm_(parameters, limit)

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        return tensor


def make_accelerator(
    precision: str, log_with: Sequence[str] = (), folder: Path | None = None
) -> Accelerator:
    """Return accelerate's object for this machine, as it was launched.

    Args:
        precision: auto, fp32 or bf16.
        log_with: Names of experiment trackers.
        folder: Folder of the files of trackers.
    """
    cpu = not torch.accelerator.is_available()
    if precision == "bf16" and not has_bf16():
        raise SettingsError(
            "training.precision must be 'auto' or 'fp32' on this device, which does "
            "not compute in bfloat16, got 'bf16'."
        )
    if precision == "auto":  # on a CPU that has it, it is rarely faster
        precision = "bf16" if has_bf16() and not cpu else "fp32"
    # Its state is one for the whole process, and otherwise refuses a second run there
    # that has another precision.
    AcceleratorState._reset_state()
    return Accelerator(
        cpu=cpu,
        mixed_precision="bf16" if precision == "bf16" else "no",
        log_with=list(log_with) or None,  # an empty list is warned about
        project_config=ProjectConfiguration(logging_dir=folder and str(folder)),
    )


def check_trackers(names: Sequence[str]) -> None:
    """Refuse experiment trackers that are unknown or not installed."""
    available = [str(name) for name in get_available_trackers()]
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS:
            known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
            raise SettingsError(f"log_with must be one of {known}, got {name!r}.")
        if name not in available:
            raise SettingsError(
                f"log_with: the package of {name} is not installed. "
                f"Install it with pip install {name}."
            )


def has_bf16() -> bool:
    """Return whether this machine computes in bfloat16; on a CPU, its LSTM."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    if torch.accelerator.is_available():
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


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
