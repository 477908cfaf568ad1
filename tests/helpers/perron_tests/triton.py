"""Tests of the Triton kernels in an interpreter or on a GPU.

The tests run in a process of their own, because Triton's interpreter has to be selected
before Triton is imported, and because Triton cannot read the functions that the shape
checker of the test run wraps. `run_tests` starts that process, for one of the devices

    interpreter   Triton's interpreter, on CPU tensors
    ptx           code compiled for sm_80, in the interpreter of `perron_tests.ptx`
    cuda          a GPU

There, the fixtures of tests/solver and tests/pooling have the kernel "triton", and
tests that do not run it are deselected.

    python -m perron_tests.triton [--tiny]

runs the tests on a GPU, or with --tiny in Triton's interpreter.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from perron.kernels import BACKENDS, Backend, Kernels
from perron_tests import TRITON_DEVICE as DEVICE
from perron_tests import TRITON_VARIABLE, environment

IS_SLOW = DEVICE in ("interpreter", "ptx")
MAX_WORDS = {"interpreter": 40, "ptx": 65}.get(DEVICE, 10**9)

TESTS = Path(__file__).parents[2]
FILES = [
    "kernels/test_gth_triton.py",
    "kernels/test_pair_scores_triton.py",
    "kernels/test_ptx.py",
    "solver/test_stationary.py",
    "pooling/test_pair_scores.py",
    "pooling/test_contract.py",
    "pooling/test_centrality_options.py",
    "pooling/test_low_rank.py",
]

# Of modules whose tests call the Triton kernels directly.
runs_triton = pytest.mark.skipif(not DEVICE, reason="runs in test_triton.py")


def run_tests(device: str, *options: str, is_quiet: bool = True) -> str:
    """Run the tests on a device, and return what pytest prints.

    Args:
        device: One of the devices above.
        options: Options of pytest.
        is_quiet: Whether to show the output only if a test fails.
    """
    variables = {
        TRITON_VARIABLE: device,
        "TRITON_INTERPRET": str(int(device == "interpreter")),
        # Needed by torch.use_deterministic_algorithms on a GPU.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    # Without jaxtyping, see above. NumPy, which interpreters compute with, warns about
    # invalid values; GPUs do not.
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider -p no:xdist"
    process = subprocess.run(
        [*command.split(), "-o", "addopts=", "-W", "ignore::RuntimeWarning", *options]
        + [str(TESTS / file) for file in FILES],
        env=environment(**variables),
        stdout=subprocess.PIPE if is_quiet else None,
        stderr=subprocess.STDOUT if is_quiet else None,
        text=True,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout or ""


@cache
def triton_kernels(operation: str) -> Kernels:
    """Return Triton kernels for CPU tensors, which run on the device of these tests."""
    if DEVICE == "ptx":
        from perron_tests.ptx_launch import install

        install()
    kernels = BACKENDS["triton"].kernels[operation]
    return Kernels(_on_device(kernels.forward), _on_device(kernels.backward))


def _on_device(function: Callable[..., Any]) -> Callable[..., Any]:
    def move(value: Any, device: str) -> Any:
        if isinstance(value, tuple):
            return tuple(move(part, device) for part in value)
        return value.to(device) if isinstance(value, Tensor) else value

    def call(*arguments: Any) -> Any:
        if arguments[0].dtype != torch.float32:
            pytest.skip("Triton's kernels are for float32")
        device = "cuda" if DEVICE == "cuda" else "cpu"
        return move(function(*move(arguments, device)), "cpu")

    return call


def _load() -> dict[str, Kernels]:
    triton = {name: triton_kernels(name) for name in ("stationary", "pair_scores")}
    return BACKENDS["torch"].kernels | triton  # as on a GPU


TRITON = Backend("triton", _load)


def with_triton(kernels: dict[str, Any]) -> dict[str, Any]:
    """Return the kernels of a test's fixture; only Triton's in the process above."""
    return {"triton": TRITON} if DEVICE else kernels


def main() -> None:
    """Run the tests and show their output."""
    is_tiny = "--tiny" in sys.argv
    if not is_tiny and not torch.cuda.is_available():
        sys.exit(
            "The kernel tests need a GPU, and torch finds none. Use --tiny to run them "
            "in Triton's interpreter."
        )
    try:
        run_tests("interpreter" if is_tiny else "cuda", is_quiet=False)
    except AssertionError:
        sys.exit("Tests of the Triton kernels failed. Please report their output.")


if __name__ == "__main__":
    main()
