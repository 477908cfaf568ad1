"""Random graphs and masks."""

import torch
from torch import Tensor

from perron_tests import TRITON_DEVICE

DTYPE = torch.float32 if TRITON_DEVICE else torch.float64  # as the kernels support

HALVES = [torch.float16, torch.bfloat16]


def random_edges(*shape: int, seed: int = 0, low: float = 0.05) -> Tensor:
    """Return uniform random edges in [low, low + 1)."""
    rng = torch.Generator().manual_seed(seed)
    return low + torch.rand(*shape, generator=rng, dtype=DTYPE)


def softmax_edges(*shape: int, std: float, seed: int = 0) -> Tensor:
    """Return the column softmax of normal random scores."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(*shape, generator=rng, dtype=torch.float64)
    return (std * scores).softmax(-2).to(DTYPE)


def random_mask(*shape: int, seed: int = 0) -> Tensor:
    """Return a mask with padding anywhere; the first text has no words."""
    rng = torch.Generator().manual_seed(seed)
    mask = torch.rand(*shape, generator=rng) < 0.7
    mask[0] = False
    mask[1:, shape[-1] // 2] = True
    return mask
