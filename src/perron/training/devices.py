"""Devices and processes that train a model, and trackers that log it."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
from accelerate.utils import ProjectConfiguration
from torch import Tensor, nn

from perron.errors import SettingsError


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
