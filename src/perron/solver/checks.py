"""What every solver asks of its arguments, and how it brings them into one form."""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from perron.arguments import bool_mask

Norm = Literal["sum", "l2"]


class Graphs(NamedTuple):
    """A batch of graphs in the form in which solvers work."""

    edges: Float[Tensor, "b n n"]  # float32 or float64
    mask: Bool[Tensor, "b n"] | None  # None: every word is in use
    shape: torch.Size  # of a vector over the words, as the caller has it
    dtype: torch.dtype  # the caller's

    def words(self) -> Bool[Tensor, "b n"]:
        """Return the mask, made if there is none."""
        if self.mask is not None:
            return self.mask
        return self.edges.new_ones(self.edges.shape[:-1], dtype=torch.bool)


def check_graphs(edges: Tensor, mask: Tensor | None, norm: str) -> Graphs:
    """Refuse what no solver takes; flatten the batch axes and widen half precision."""
    if edges.ndim < 2 or edges.shape[-1] != edges.shape[-2]:
        raise ValueError(
            f"edges must have shape (..., N, N), but came as {tuple(edges.shape)}"
        )
    if not edges.is_floating_point():
        raise ValueError(f"edges must be floating point, but came as {edges.dtype}")
    shape = edges.shape[:-1]
    if mask is not None:
        if mask.device != edges.device:
            raise ValueError(
                f"mask is on {mask.device}, but edges are on {edges.device}"
            )
        mask = bool_mask(mask)
        if mask.shape != shape:
            mask = _expand(mask, shape, edges.shape)
    check_norm(norm)
    dtype = edges.dtype
    if dtype not in (torch.float32, torch.float64):
        edges = edges.float()
    if edges.ndim != 3:
        n = shape[-1]
        texts = math.prod(shape[:-1])  # Size.numel() would fix a traced size
        edges = edges.reshape(texts, n, n)
        mask = mask if mask is None else mask.reshape(texts, n)
    return Graphs(edges, mask, shape, dtype)


def _expand(mask: Tensor, shape: torch.Size, edges: torch.Size) -> Tensor:
    """Repeat a mask along the batch axes that it lacks, never along the words."""
    try:
        if mask.shape[-1:] != shape[-1:]:
            raise RuntimeError("wrong number of words")
        return mask.expand(shape)
    except RuntimeError as error:
        raise ValueError(
            f"mask must have shape {tuple(shape)} to fit edges of shape "
            f"{tuple(edges)}, but came as {tuple(mask.shape)}"
        ) from error


def check_norm(norm: str) -> None:
    """Refuse a norm that is not offered."""
    if norm not in ("sum", "l2"):
        raise ValueError(f'norm must be "sum" or "l2", but came as {norm!r}')


def normalise(vector: Float[Tensor, "b n"], norm: str) -> Float[Tensor, "b n"]:
    """Scale to sum one, or to unit length; a zero vector stays zero."""
    if norm == "sum":
        size = vector.sum(-1, keepdim=True)
    else:
        size = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return vector / torch.where(size == 0, 1, size)
