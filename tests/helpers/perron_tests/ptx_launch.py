"""Launches of Triton kernels on CPU tensors, executed by `perron_tests.ptx`."""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from triton.runtime.jit import JITFunction

from perron_tests import ptx
from perron_tests.plain.compile_triton import TARGETS, compile_kernel

POINTERS = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.bool: "*i1",
}

# Which bytes of a tensor are defined, if it was allocated by torch.empty.
_is_defined = WeakTensorKeyDictionary()


def install() -> None:
    """Replace launches by compilation for sm_80 and interpretation of the PTX."""
    JITFunction.run = _run
    for owner, name in ((Tensor, "new_empty"), (torch, "empty_like")):
        setattr(owner, name, _remembering(getattr(owner, name)))


def _remembering(allocate: Any) -> Any:
    def call(*arguments: Any, **options: Any) -> Tensor:
        tensor = allocate(*arguments, **options)
        _is_defined[tensor] = np.zeros(tensor.nbytes, bool)
        return tensor

    return call


@cache
def _compile(kernel: Any, types: tuple[str, ...], constants: Any, warps: int) -> Any:
    values = dict(constants)
    names = [name for name in kernel.arg_names if name not in values]
    signature = dict(zip(names, types, strict=True))
    return compile_kernel(kernel, signature, values, warps, TARGETS["sm_80"])


def edit(text: str) -> str:
    """Return the PTX to run; replaced by tests that plant faults."""
    return text


def _run(
    kernel: Any,
    *arguments: Any,
    grid: Any,
    warmup: bool,
    num_warps: int,
    **constants: Any,
) -> None:
    types, values = [], []
    for argument in arguments:
        if isinstance(argument, Tensor):
            assert argument.is_contiguous()
            data = argument.detach().numpy().reshape(-1).view(np.uint8)
            is_defined = _is_defined.get(argument)
            if is_defined is None:
                is_defined = np.ones(len(data), bool)
            values.append((data, is_defined))
            types.append(POINTERS[argument.dtype])
        else:
            is_integer = isinstance(argument, int)
            values.append(np.int32(argument) if is_integer else np.float32(argument))
            types.append("i32" if is_integer else "fp32")
    compiled = _compile(kernel, tuple(types), tuple(constants.items()), num_warps)
    shared = compiled.metadata.shared
    ptx.run(edit(compiled.asm["ptx"]), grid, 32 * num_warps, shared, values)
