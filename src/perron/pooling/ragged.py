"""Texts side by side without padding: how long each is, as the caller says it."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def check_lengths(
    states: Tensor,
    lengths: Tensor | Sequence[int] | None,
    offsets: Tensor | Sequence[int] | None,
) -> Int[Tensor, " b"]:
    """Return the number of words of each text; refuse what does not fit the states."""
    if lengths is not None and offsets is not None:
        raise ValueError("give lengths or offsets, not both")
    name = "lengths" if offsets is None else "offsets"
    raw = lengths if offsets is None else offsets
    try:
        given = torch.as_tensor(raw)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{name} must be whole numbers, but came as {raw}") from error
    if given.numel() == 0:
        given = given.long()  # an empty list has no dtype of its own
    whole = not (given.is_floating_point() or given.is_complex())
    if given.ndim != 1 or not whole or given.dtype == torch.bool:
        raise ValueError(
            f"{name} must be whole numbers on one axis, but came as {given.dtype} of "
            f"shape {tuple(given.shape)}"
        )
    given = given.to(states.device, torch.int64)
    if offsets is not None:
        if len(given) == 0 or given[0] != 0:
            raise ValueError("offsets must begin with 0: where the first text begins")
        given = given.diff()
    if (given < 0).any():
        problem = "be negative" if offsets is None else "decrease"
        text = int((given < 0).nonzero()[0])
        raise ValueError(f"{name} must not {problem}, but do so at text {text}")
    total = sum(given.tolist())  # of Python's integers, which do not wrap around
    if total != len(states):
        raise ValueError(
            f"{name} make {total} words, but states have {len(states)} rows"
        )
    return given


def mask_of(lengths: Int[Tensor, " b"]) -> Bool[Tensor, "b n"]:
    """Return a mask with as many words of each text at its beginning."""
    longest = int(lengths.max()) if len(lengths) else 0
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
