"""Checks of arguments that solvers, aggregators, layers and models share."""

from collections.abc import Iterable

import torch
from torch import Tensor

Device = torch.device | str | int | None  # what torch takes as device=


def check_at_least(least: int, **values: int | float) -> None:
    """Raise ValueError unless each value is at least ``least``."""
    for name, value in values.items():
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")


def check_share(**values: int | float) -> None:
    """Raise ValueError unless each value is at least 0 and below 1."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {value}.")


def check_choice(options: Iterable[str], **values: object) -> None:
    """Raise ValueError unless each value is one of the options."""
    known = tuple(options)
    for name, value in values.items():
        if value not in known:
            shown = " or ".join(f'"{option}"' for option in known)
            if len(known) > 2:
                shown = "one of " + ", ".join(f'"{option}"' for option in known)
            raise ValueError(f"{name} must be {shown}, got {value!r}.")


def bool_mask(mask: Tensor, name: str = "mask") -> Tensor:
    """Return a mask as bool: True, or the number 1, on tokens.

    Raises:
        ValueError: An entry is a number other than 0 and 1. Traced graphs, which have
            no values to look at, take every number but 0 for True.
    """
    if mask.dtype == torch.bool:
        return mask
    if not (torch.compiler.is_compiling() or mask.is_meta or _is_tracing()):
        wrong = mask[(mask != 0) & (mask != 1)]
        if wrong.numel():
            raise ValueError(
                f"{name} must be bool, or 1 on tokens and 0 on padding, got "
                f"{wrong[0].item()} in a mask of {mask.dtype}. Attention masks of 0 "
                "and -inf become one with mask == 0."
            )
    return mask != 0


def _is_tracing() -> bool:
    return torch.jit.is_tracing()  # type: ignore[attr-defined]
