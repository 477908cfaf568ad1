"""Argument validation shared by solvers, aggregators, layers and models."""

from collections.abc import Iterable, Sequence
from numbers import Integral, Real

import torch
from jaxtyping import Int
from torch import Tensor

Device = torch.device | str | int | None  # types that torch accepts as device=


def check_at_least(minimum: int, **values: object) -> None:
    """Raise ValueError unless each value is an integer of at least ``minimum``."""
    for name, value in values.items():
        if not isinstance(value, Integral):
            raise ValueError(f"{name} must be an integer, got {value!r}.")
        if int(value) < minimum:
            raise ValueError(f"{name} must be at least {minimum}, got {value}.")


def check_fraction(**values: object) -> None:
    """Raise ValueError unless each value is a number of at least 0 and below 1."""
    for name, value in values.items():
        if not isinstance(value, Real):
            raise ValueError(f"{name} must be a number, got {value!r}.")
        if not 0 <= float(value) < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {value}.")


def check_choice(options: Iterable[str], **values: object) -> None:
    """Raise ValueError unless each value is one of the options."""
    options = tuple(options)
    for name, value in values.items():
        if value not in options:
            expected = " or ".join(f'"{option}"' for option in options)
            if len(options) > 2:
                expected = "one of " + ", ".join(f'"{option}"' for option in options)
            raise ValueError(f"{name} must be {expected}, got {value!r}.")


def bool_mask(mask: Tensor, name: str = "mask") -> Tensor:
    """Convert a mask to bool.

    Raises:
        ValueError: If an entry is a number other than 0 and 1. Where this is not
            checked, every number except 0 is converted to True: in traced graphs, and
            for integers on a GPU, because the check would wait for the device.
    """
    if mask.dtype == torch.bool:
        return mask
    # Additive masks of 0 and -inf are floating point, so these are always checked.
    if has_values(mask) and (mask.is_cpu or mask.is_floating_point()):
        wrong = mask[(mask != 0) & (mask != 1)]
        if wrong.numel():
            raise ValueError(
                f"{name} must be bool, or 1 on tokens and 0 on padding, got "
                f"{wrong[0].item()} in a mask of {mask.dtype}. Convert an additive "
                "attention mask of 0 and -inf with mask == 0."
            )
    return mask != 0


def has_values(x: Tensor) -> bool:
    """Return whether the entries of a tensor can be read.

    They cannot be read in a traced graph, on the meta device, or while a CUDA graph is
    being captured.
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
    """Return the number of tokens in each text, on the device of the states.

    Args:
        states: (M, …), the concatenated tokens of all texts.
        lengths: (B), number of tokens in each text. Alternatively, pass offsets.
        offsets: (B + 1), start of each text, followed by M.

    Raises:
        ValueError: If lengths or offsets are not integers or do not add up to M.
    """
    if lengths is not None and offsets is not None:
        raise ValueError(
            "lengths and offsets are mutually exclusive. Pass one of them."
        )
    name = "lengths" if offsets is None else "offsets"
    raw = lengths if offsets is None else offsets
    try:
        counts = torch.as_tensor(raw)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{name} must contain integers, got {raw}.") from error
    if counts.numel() == 0:
        counts = counts.long()  # torch converts an empty list to float32
    is_integer = not (counts.is_floating_point() or counts.is_complex())
    if counts.ndim != 1 or not is_integer or counts.dtype == torch.bool:
        raise ValueError(
            f"{name} must be a one-dimensional sequence of integers, got "
            f"{counts.dtype} of shape {tuple(counts.shape)}."
        )
    counts = counts.to(states.device, torch.int64)
    if offsets is not None:
        if len(counts) == 0 or counts[0] != 0:
            raise ValueError(f"offsets must start with 0, got {counts[:1].tolist()}.")
        counts = counts.diff()
    if (counts < 0).any():
        text = int((counts < 0).nonzero()[0])
        expected = "be at least 0" if offsets is None else "not decrease"
        raise ValueError(f"{name} must {expected}, got {counts[text]} for text {text}.")
    total = sum(counts.tolist())  # Python integers do not overflow
    if total != len(states):
        raise ValueError(
            f"{name} must add up to the {len(states)} rows of states, got {total}."
        )
    return counts
