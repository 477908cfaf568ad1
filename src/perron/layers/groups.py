"""Texts of like length side by side: flat words become tensors with little padding."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function

# A tenth of a group's cells may be padding. Less makes groups of a few texts, whose
# small products run slower than the padding that they save.
MAX_PADDING = 0.1


class Groups(NamedTuple):
    """Where each word of a flat batch lies when texts are padded group by group.

    The groups' cells stand one after the other: the first group's (texts x words),
    then the second's. ``cells[w]`` is the cell of word w, ``words[c]`` the word of
    cell c, or -1 for padding.
    """

    shapes: list[tuple[int, int]]  # texts, words
    lengths: list[Int[Tensor, " texts"]]
    cells: Int[Tensor, " words"]
    words: Int[Tensor, " cells"]


def length_groups(lengths: Sequence[int], max_padding: float = MAX_PADDING) -> Groups:
    """Group texts so that no group has a larger share of padding than is allowed.

    Longest first; a group ends where the next text would bring too much padding. Texts
    with no words are in no group.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    ends = _cuts(sizes[order].tolist(), max_padding)
    shapes, group_lengths, words = [], [], []
    for begin, end in pairwise(ends):
        rows = order[begin:end]
        longest = int(sizes[rows[0]])
        position = np.arange(longest)
        held = np.where(position < sizes[rows, None], starts[rows, None] + position, -1)
        shapes.append((len(rows), longest))
        group_lengths.append(torch.from_numpy(sizes[rows]))
        words.append(held.ravel())
    of_cell = np.concatenate(words) if words else np.zeros(0, np.int64)
    cells = np.empty(int(sizes.sum()), np.int64)
    filled = np.flatnonzero(of_cell >= 0)
    cells[of_cell[filled]] = filled
    return Groups(
        shapes, group_lengths, torch.from_numpy(cells), torch.from_numpy(of_cell)
    )


def _cuts(descending: list[int], max_padding: float) -> list[int]:
    """Return where groups begin, and the end of the last, for sizes in order."""
    cuts, longest, words = [0], 0, 0
    for row, size in enumerate(descending):
        cells = longest * (row + 1 - cuts[-1])
        if row and words + size < (1 - max_padding) * cells:
            cuts.append(row)
            words = 0
        if row == cuts[-1]:
            longest = size
        words += size
    return [*cuts, len(descending)] if descending else [0]


def take(
    rows: Float[Tensor, "n d"], index: Int[Tensor, " m"], inverse: Int[Tensor, " n"]
) -> Float[Tensor, "m d"]:
    """Return ``rows[index]``, zero where the index is -1.

    ``inverse`` is where each row went, -1 for nowhere: no row goes to two places, so
    that the gradient is the same operation the other way round, and needs no sums.
    """
    taken: Tensor = _TakeOrZero.apply(rows, index, inverse)
    return taken


class _TakeOrZero(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(index, inverse)
        if not len(rows):
            return rows.new_zeros(len(index), rows.shape[1])
        taken = rows.index_select(0, index.clamp(min=0))
        return taken.masked_fill_((index < 0).unsqueeze(1), 0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        index, inverse = ctx.saved_tensors
        return take(gradient, inverse, index), None, None
