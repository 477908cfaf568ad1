"""Checks of arguments that solvers, aggregators, layers and models share."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

Device = torch.device | str | int | None  # what torch takes as device=


def check_at_least(least: int, **values: int | float) -> None:
    """Raise ValueError unless each value is at least ``least``."""
    for name, value in values.items():
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")


def check_fraction(**values: int | float) -> None:
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
    if has_values(mask):
        wrong = mask[(mask != 0) & (mask != 1)]
        if wrong.numel():
            raise ValueError(
                f"{name} must be bool, or 1 on tokens and 0 on padding, got "
                f"{wrong[0].item()} in a mask of {mask.dtype}. Attention masks of 0 "
                "and -inf become one with mask == 0."
            )
    return mask != 0


def has_values(x: Tensor) -> bool:
    """Return whether the entries of a tensor can be looked at.

    They cannot in a traced graph, on the meta device, and while a CUDA graph is
    captured.
    """
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    if torch.compiler.is_compiling() or tracing or x.is_meta:
        return False
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


def check_lengths(
    states: Tensor,
    lengths: Tensor | Sequence[int] | None,
    offsets: Tensor | Sequence[int] | None = None,
) -> Int[Tensor, " b"]:
    """Return the number of tokens of each text, on the device of the states.

    Args:
        states: (M, …), the tokens of all texts one after the other.
        lengths: (B), the number of tokens of each text; or give offsets.
        offsets: (B + 1), where each text begins and the last one ends.

    Raises:
        ValueError: They are not whole numbers, or do not add up to M.
    """
    if lengths is not None and offsets is not None:
        raise ValueError("lengths must not be given together with offsets.")
    name = "lengths" if offsets is None else "offsets"
    raw = lengths if offsets is None else offsets
    try:
        given = torch.as_tensor(raw)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{name} must be whole numbers, got {raw}.") from error
    if given.numel() == 0:
        given = given.long()  # an empty list has no dtype of its own
    whole = not (given.is_floating_point() or given.is_complex())
    if given.ndim != 1 or not whole or given.dtype == torch.bool:
        raise ValueError(
            f"{name} must be whole numbers on one axis, got {given.dtype} of shape "
            f"{tuple(given.shape)}."
        )
    given = given.to(states.device, torch.int64)
    if offsets is not None:
        if len(given) == 0 or given[0] != 0:
            raise ValueError(
                "offsets must begin with 0, where the first text begins, got "
                f"{given[:1].tolist()}."
            )
        given = given.diff()
    if (given < 0).any():
        text = int((given < 0).nonzero()[0])
        expected = "be at least 0" if offsets is None else "not decrease"
        raise ValueError(f"{name} must {expected}, got {given[text]} for text {text}.")
    total = sum(given.tolist())  # of Python's integers, which do not wrap around
    if total != len(states):
        raise ValueError(
            f"{name} must add up to the {len(states)} rows of states, got {total}."
        )
    return given
