"""Kernel dispatch: the choice of a backend for each operation.

An *operation* is a pair of functions, forward and backward, on plain tensors without
autograd. A *backend* implements some of the operations on some devices:

    numba   compiled for the CPU at the first call, cached on disk
    triton  compiled for NVIDIA and AMD GPUs at the first call, for float32 only
    torch   plain torch operations, for every device

All dispatch goes through `select`. In order of precedence, the choice is the innermost
`use` block, the environment variable ``PERRON_KERNELS``, or "auto", which is the first
backend in `BACKENDS` that supports the operation on the tensor's device and dtype. The
modules of a backend are imported when it is first selected, so "torch" never imports
numba.

Triton kernels selected by "auto" are compared with plain torch at first use (see
`self_check`). Kernels selected by name are not.

While numba kernels selected by "auto" are not compiled yet, torch kernels do their work
(see `background`), unless the call records gradients: training waits, so that its
results do not depend on timing. `wait_for_compiled` makes every call wait.
"""

import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from perron.errors import SettingsError
from perron.kernels.background import BackgroundCompiler, example

VARIABLE = "PERRON_KERNELS"

# The torch modules are the reference implementations.
OPERATIONS = (
    "stationary",  # gth_torch
    "pair_scores",  # pair_scores_torch
    "column_softmax",  # reductions_torch
    "segment_sum",  # reductions_torch
    "segment_argmax",  # reductions_torch; not differentiable
    "mix_layers",  # reductions_torch
)


def _no_backward(*_: Any) -> None:
    raise RuntimeError("This operation has no backward pass.")


class Kernels(NamedTuple):
    """Forward and backward functions of an operation."""

    forward: Callable[..., Any]
    backward: Callable[..., Any] = _no_backward
    backend: str = ""  # set by `Backend`


@dataclass(frozen=True, eq=False)
class Backend:
    """Kernels for some operations on some devices.

    Args:
        name: Name of the backend.
        load: Function that imports the kernels and returns them by operation. Called
            once, at first use. Missing operations fall back to other backends.
        devices: Supported device types, such as ``"cpu"``. Defaults to all devices.
        dtypes: Supported floating-point types. Defaults to all types.
    """

    name: str
    load: Callable[[], Mapping[str, Kernels]]
    devices: tuple[str, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None

    @cached_property
    def kernels(self) -> dict[str, Kernels]:
        """Kernels by operation."""
        loaded = self.load()
        if unknown := set(loaded) - set(OPERATIONS):
            raise ValueError(
                f"Operations of a backend must be among {', '.join(OPERATIONS)}, "
                f"got {', '.join(sorted(unknown))}."
            )
        return {
            operation: kernels._replace(backend=self.name)
            for operation, kernels in loaded.items()
        }

    def supports(self, device: str, dtype: torch.dtype = torch.float32) -> bool:
        """Return whether the backend supports a device type and a dtype."""
        return (self.devices is None or device in self.devices) and (
            self.dtypes is None or dtype in self.dtypes
        )


def _load_numba() -> dict[str, Kernels]:
    from perron.kernels import gth_cpu, pair_scores_cpu, reductions_cpu
    from perron.kernels.simd import check_compiler

    check_compiler()
    return _kernels(gth_cpu, pair_scores_cpu, reductions_cpu)


def _load_triton() -> dict[str, Kernels]:
    from perron.kernels import gth_triton, pair_scores_triton

    return {
        "stationary": Kernels(gth_triton.forward, gth_triton.backward),
        "pair_scores": Kernels(pair_scores_triton.forward, pair_scores_triton.backward),
    }


def _load_torch() -> dict[str, Kernels]:
    from perron.kernels import gth_torch, pair_scores_torch, reductions_torch

    return _kernels(gth_torch, pair_scores_torch, reductions_torch)


def _kernels(gth: Any, pair_scores: Any, reductions: Any) -> dict[str, Kernels]:
    """Collect the operations in the three modules of a backend."""
    return {
        "stationary": Kernels(gth.forward, gth.backward),
        "pair_scores": Kernels(pair_scores.forward, pair_scores.backward),
        "column_softmax": Kernels(
            reductions.column_softmax, reductions.column_softmax_backward
        ),
        "segment_sum": Kernels(reductions.segment_sum, reductions.segment_sum_backward),
        "segment_argmax": Kernels(reductions.segment_argmax),
        "mix_layers": Kernels(reductions.mix_layers, reductions.mix_layers_backward),
    }


# Triton's interpreter runs the kernels on the CPU, slowly, for tests.
_IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

# In the order in which "auto" tries them. The last one supports every operation.
BACKENDS = {
    "numba": Backend("numba", _load_numba, devices=("cpu",)),
    "triton": Backend(
        "triton",
        _load_triton,
        devices=("cuda", "cpu") if _IS_INTERPRETED else ("cuda",),  # ROCm is "cuda" too
        dtypes=(torch.float32,),
    ),
    "torch": Backend("torch", _load_torch),
}

_used: ContextVar[str | Backend | None] = ContextVar("perron.kernels", default=None)


@contextmanager
def use(backend: str | Backend) -> Iterator[None]:
    """Select the kernels of the calls inside a ``with`` block.

    ``"numba"``, ``"triton"`` and ``"torch"`` select that backend for the operations,
    devices and dtypes it supports; everything else uses torch. ``"auto"`` selects the
    fastest backend that works.

    Blocks can be nested; the innermost one applies. A block affects eager calls in the
    current thread (or asyncio task). A backward pass uses the kernels of its forward
    pass, no matter when it runs. Compiled and exported graphs depend only on
    ``PERRON_KERNELS``, because their forward and backward are called separately.

    Args:
        backend: ``"auto"``, ``"numba"``, ``"triton"``, ``"torch"``, or a `Backend`,
            which is used for the operations it implements.

    Example:
        >>> import perron, torch
        >>> with perron.kernels.use("torch"):
        ...     weights = perron.stationary_distribution(torch.ones(3, 3))
    """
    if not isinstance(backend, Backend):
        _check(backend, "backend")
    token = _used.set(backend)
    try:
        yield
    finally:
        _used.reset(token)


def select(operation: str, tensor: Tensor) -> Kernels:
    """Return the kernels for an eager call on a tensor."""
    used = _used.get()
    kernels = _find(operation, tensor, used)
    if isinstance(kernels, _Pending):
        if (
            torch.is_grad_enabled()
            or tensor.requires_grad  # inside an autograd Function
            or torch.are_deterministic_algorithms_enabled()
        ):
            wait_for_compiled()
            return kernels.compiled()
        _compiler().request((operation, tensor.dtype))
        return kernels.plain()
    return kernels


def select_for_graph(operation: str, tensor: Tensor) -> Kernels:
    """Return the kernels for an operator in a traced graph; see `use`."""
    kernels = _find(operation, tensor, None)
    if isinstance(kernels, _Pending):
        wait_for_compiled()  # because forward and backward are selected separately
        return kernels.compiled()
    return kernels


def selected(tensor: Tensor) -> dict[str, str]:
    """Return the name of the backend selected for each operation on a tensor.

    Only the tensor's type and device matter. The backend is imported, which shows
    whether numba works, but no kernels are compiled. Until they are compiled, calls
    without gradients use torch instead of numba; see `wait_for_compiled`.
    """
    used = _used.get() if is_eager(tensor) else None
    names = {}
    for operation in OPERATIONS:
        kernels = _find(operation, tensor, used)
        if isinstance(kernels, _Pending):
            kernels = kernels.compiled()
        names[operation] = kernels.backend
    return names


def wait_for_compiled() -> None:
    """Make all later calls wait until their kernels are compiled.

    By default, plain torch answers calls without gradients until the kernels are
    compiled, so the rounding errors of results depend on timing. Calls that record
    gradients wait, and so do all calls after the first of them.
    """
    global _waits
    if not _waits:
        _waits = True
        _select.cache_clear()


def compile_in_background() -> None:
    """Start to compile the kernels of an operation at its first call.

    By default, compilation starts only after half a second of calls. The calls
    themselves do not wait.
    """
    _compiler().patience = 0.0


def is_eager(*tensors: Tensor) -> bool:
    """Return whether the call is eager and the tensors are plain torch tensors."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return False
    for tensor in tensors:  # noqa: SIM110  a generator is slower
        if type(tensor) not in (Tensor, torch.nn.Parameter):
            return False
    return True


class _Pending(NamedTuple):
    """Operation whose numba kernels are not compiled yet."""

    operation: str

    def plain(self) -> Kernels:
        """Return the kernels that can be used in the meantime."""
        return BACKENDS["torch"].kernels[self.operation]

    def compiled(self) -> Kernels:
        """Return the numba kernels, which compile when called, if numba works."""
        backend = BACKENDS["numba" if _works("numba") else "torch"]
        return backend.kernels[self.operation]


def _build(operation: str, dtype: torch.dtype, check: Callable[[], None]) -> None:
    """Compile the numba kernels of an operation for a dtype."""
    kernels = BACKENDS["numba"].kernels[operation]
    from perron.kernels.compile import interruptible

    with interruptible(check):
        kernels.forward(*example(operation, dtype))


def _find(
    operation: str, tensor: Tensor, used: str | Backend | None
) -> Kernels | _Pending:
    # tensor.device creates an object each time, which is slower than all the rest.
    device = "cpu" if tensor.is_cpu else tensor.device
    if isinstance(used, Backend):
        kind = device if isinstance(device, str) else device.type
        if used.supports(kind, tensor.dtype) and operation in used.kernels:
            return used.kernels[operation]
        used = None
    return _select(operation, device, tensor.dtype, used)


@cache
def _select(
    operation: str, device: str | torch.device, dtype: torch.dtype, choice: str | None
) -> Kernels | _Pending:
    choice = choice or _default_choice()
    kind = device if isinstance(device, str) else device.type
    for name in BACKENDS if choice == "auto" else (choice, "torch"):
        backend = BACKENDS[name]
        if not backend.supports(kind, dtype):
            continue
        is_checked = choice == "auto" and name == "triton"
        if is_checked and not _has_triton(device):
            continue
        if choice == "auto" and name == "numba" and not _waits:
            key = (operation, dtype)
            if key in _compiler().failed:
                _warn_unusable(name, _compiler().failed[key])
                continue
            if key not in _compiler().ready:
                return _Pending(operation)
        if choice == "auto" and not _works(name):
            continue
        if operation in backend.kernels:
            return _checked(operation) if is_checked else backend.kernels[operation]
    raise AssertionError(f"No backend implements {operation}.")


def _has_triton(device: str | torch.device) -> bool:
    """Return whether "auto" may use Triton: NVIDIA from Ampere on, or any AMD GPU."""
    if isinstance(device, str) or importlib.util.find_spec("triton") is None:
        return False
    if torch.version.hip is not None:
        return True
    return torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def _checked(operation: str) -> Kernels:
    """Return the Triton kernels, or plain torch where they fail their self-check."""
    from perron.kernels.self_check import checked

    kernels = [BACKENDS[name].kernels[operation] for name in ("triton", "torch")]
    return checked(operation, *kernels)


@cache
def _default_choice() -> str:
    """Return the value of the environment variable, which is read once."""
    choice = os.environ.get(VARIABLE) or "auto"
    _check(choice, VARIABLE)
    return choice


def _check(choice: str, name: str) -> None:
    if choice not in ("auto", *BACKENDS):
        raise SettingsError(
            f"{name} must be one of auto, {', '.join(BACKENDS)}, got {choice!r}."
        )


@cache
def _works(name: str) -> bool:
    """Load a backend; if that fails, warn once and return False."""
    try:
        return bool(BACKENDS[name].kernels)
    except Exception as error:  # a broken installation can raise anything
        _warn_unusable(name, error)
        return False


_unusable: set[str] = set()  # backends already warned about


def _warn_unusable(name: str, error: Exception) -> None:
    if name in _unusable:
        return
    _unusable.add(name)
    warnings.warn(
        f"The {name} kernels cannot be used ({type(error).__name__}: {error}). "
        "Falling back to plain torch, which is slower. "
        f"Set {VARIABLE}=torch to silence this warning.",
        RuntimeWarning,
        stacklevel=2,
    )


_waits = False  # whether calls wait until their kernels are compiled


@cache
def _compiler() -> BackgroundCompiler:
    return BackgroundCompiler(_build, on_change=_select.cache_clear)
