"""The self-check of GPU kernels at first use.

Each compilation of a kernel is compared once per device with plain torch in float64, on
a small batch. A compilation that fails or disagrees is replaced by plain torch for the
rest of the process. Its forward and its backward are replaced together, because factors
have a different layout in each backend.
"""

import threading
import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from perron.kernels.dispatch import VARIABLE, Kernels

# Far above rounding errors, far below the errors of a kernel that computes something
# else.
TOLERANCE = 1e-3

_Trial = Callable[[Kernels, torch.device, Any, torch.dtype], list[Tensor]]


def checked(operation: str, kernels: Kernels, plain: Kernels) -> Kernels:
    """Return kernels that check themselves at first use and fall back to plain ones.

    Args:
        operation: Key of `OPERATIONS`, with a check in this module.
        kernels: Kernels to check, for float32.
        plain: Kernels that are known to be correct.
    """
    case_of, trial = _TRIALS[operation]
    verdicts: dict[Hashable, bool] = {}
    lock = threading.Lock()
    warned = set()

    def choose(arguments: tuple[Any, ...]) -> Kernels:
        device, case = arguments[0].device, case_of(arguments)
        right = verdicts.get((device, case))
        if right is None:
            with lock:
                if (device, case) not in verdicts:
                    problem = _find_flaw(trial, kernels, plain, device, case)
                    if problem and device not in warned:
                        warned.add(device)
                        _warn(operation, kernels.backend, device, case, problem)
                    verdicts[device, case] = not problem
                right = verdicts[device, case]
        return kernels if right else plain

    return Kernels(
        lambda *arguments: choose(arguments).forward(*arguments),
        lambda *arguments: choose(arguments).backward(*arguments),
        kernels.backend,
    )


def _find_flaw(
    trial: _Trial, kernels: Kernels, plain: Kernels, device: torch.device, case: Any
) -> str:
    """Return a description of the first error of the kernels, or an empty string."""
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            got = trial(kernels, device, case, torch.float32)
            expected = trial(plain, device, case, torch.float64)
            # One number for all results, so that there is one wait for the device.
            errors = [_error(a, b) for a, b in zip(got, expected, strict=True)]
            worst = float(torch.stack(errors).max())
    except Exception as error:  # compilers and drivers can raise anything
        return f"{type(error).__name__}: {error}"
    if worst <= TOLERANCE:
        return ""
    return f"relative error {worst:.1e}"  # nan too


def _error(got: Tensor, expected: Tensor) -> Tensor:
    """Return the largest difference relative to the largest entry; NaN stays NaN."""
    return (got - expected).abs().max() / expected.abs().max()


def _warn(
    operation: str, backend: str, device: torch.device, case: Any, problem: str
) -> None:
    model = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    warnings.warn(
        f"The {backend} kernels of {operation} failed their self-check on {device} "
        f"({model}; torch {torch.__version__}; case {case}): {problem}. Plain torch is "
        "used instead, which is slower. Please open an issue that includes this "
        f"message. Set {VARIABLE}=torch to use plain torch without a warning.",
        RuntimeWarning,
        stacklevel=2,
    )


def _random(device: torch.device, *shape: int) -> Tensor:
    """Return numbers that depend only on the shape; keep the caller's RNG state."""
    rng = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=rng).to(device)


def _mask(device: torch.device, words: int) -> Tensor:
    """Return the mask of a text, a text with gaps, and an empty text."""
    mask = torch.ones(3, words, dtype=torch.bool)
    mask[1, ::3] = False
    mask[2] = False
    return mask.to(device)


def _stationary_case(arguments: tuple[Any, ...]) -> int:
    from perron.kernels.gth_triton import MAX_WORDS, block_size

    words = arguments[0].shape[1]  # of edges, or of the gradient of the weights
    return min(block_size(words), MAX_WORDS)


def _try_stationary(
    kernels: Kernels, device: torch.device, words: int, dtype: torch.dtype
) -> list[Tensor]:
    """Return the log-weights, and the gradient with respect to the log-edges."""
    edges = (3 * _random(device, 3, words, words)).softmax(-2).to(dtype)
    mask, grad = _mask(device, words), _random(device, 3, words).to(dtype)
    weights, factors, plan = kernels.forward(edges, mask, True)
    grads = kernels.backward(grad, factors, mask, plan)
    return [weights.clamp_min(1e-30).log(), grads * edges]


def _pair_scores_case(arguments: tuple[Any, ...]) -> str:
    return arguments[-1]  # the activation


def _try_pair_scores(
    kernels: Kernels, device: torch.device, activation: str, dtype: torch.dtype
) -> list[Tensor]:
    words, heads, units = 19, 2, 21
    mask = _mask(device, words)
    x = _random(device, mask.numel(), 2, heads, units).to(dtype)
    w, grad = _random(device, heads, units), _random(device, 3, heads, words, words)
    inputs = (x, w.to(dtype), mask, activation)
    pairs = mask[:, None, :, None] & mask[:, None, None]
    scores = kernels.forward(*inputs).masked_fill(~pairs, 0)
    return [scores, *kernels.backward(grad.to(dtype), *inputs)]


_TRIALS: dict[str, tuple[Callable[[tuple[Any, ...]], Any], _Trial]] = {
    "stationary": (_stationary_case, _try_stationary),
    "pair_scores": (_pair_scores_case, _try_pair_scores),
}
