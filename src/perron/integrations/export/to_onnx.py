"""A traced classifier in ONNX."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from onnxscript import ir, optimizer
from torch import Tensor

from perron.integrations.export.module import ExportModule
from perron.integrations.export.operators import DOMAIN, functions
from perron.integrations.export.trace import trace

OPSETS = range(18, 24)  # of what `operators` uses, and torch writes
DEFAULT_OPSET = 20


def check_opset(opset: int) -> None:
    """Refuse an opset that cannot be written."""
    if opset not in OPSETS:
        raise ValueError(
            f"opset must be from {OPSETS[0]} to {OPSETS[-1]}, but came as {opset}"
        )


def to_onnx(module: ExportModule, opset: int = DEFAULT_OPSET) -> ir.Model:
    """Return the module in ONNX's own operators, with its weights."""
    with _silence():
        program = torch.onnx.export(
            trace(module).run_decompositions(_CALLS),
            input_names=list(module.inputs),
            output_names=list(module.outputs),
            opset_version=opset,
            dynamo=True,
            optimize=False,
            verbose=False,
        )
        assert program is not None
        model = program.model
        for function in functions(opset):
            read = ir.serde.deserialize_function(function)
            model.functions[read.identifier()] = read
        model.opset_imports[DOMAIN] = 1
        # Whatever depends on weights only is computed now, however large.
        optimizer.optimize_ir(model, input_size_limit=2**40, output_size_limit=2**40)
    _name_axes(model.graph.inputs, module.inputs)
    _name_axes(model.graph.outputs, module.outputs)
    return model


def _name_axes(values: Sequence[ir.Value], names: Mapping[str, Sequence[str]]) -> None:
    for value in values:
        axes = names[str(value.name)]
        known = value.shape
        assert known is not None
        value.shape = ir.Shape(
            [
                size if isinstance(size, int) else axis
                for size, axis in zip(known, axes, strict=True)
            ]
        )


@contextmanager
def _silence() -> Iterator[None]:
    """Keep torch from telling what is no concern of who exports a model."""
    chatty = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in chatty]
    try:
        for logger in chatty:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`isinstance.treespec", FutureWarning)
            yield
    finally:
        for logger, level in zip(chatty, levels, strict=True):
            logger.setLevel(level)


def _lstm(x: Tensor, w: Tensor, u: Tensor, b: Tensor, b_state: Tensor) -> Tensor:
    shape = (*x.shape[:2], u.shape[1])
    inputs = (x, w, u, b, b_state)
    return _call("lstm", inputs, x.dtype, shape, {"hidden": u.shape[1]})


def _pair_scores(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    texts, words = mask.shape
    shape = (texts, len(w), words, words)
    return _call(f"pair_scores_{activation}", (x, w, mask), x.dtype, shape)


def _stationary(
    edges: Tensor, mask: Tensor, keep_factors: bool
) -> tuple[Tensor, Tensor]:
    weights = _call("stationary", (edges, mask), edges.dtype, mask.shape)
    return weights, weights  # nobody asks for the factors


def _call(
    name: str,
    inputs: Sequence[Tensor],
    dtype: torch.dtype,
    shape: Sequence[int | torch.SymInt],
    attributes: dict[str, Any] | None = None,
) -> Tensor:
    """Stand for a call of one of the functions of ONNX."""
    return torch.onnx.ops.symbolic(
        f"{DOMAIN}::{name}", inputs, attributes, dtype=dtype, shape=shape, version=1
    )


_CALLS = {
    torch.ops.perron.lstm.default: _lstm,
    torch.ops.perron.pair_scores.default: _pair_scores,
    torch.ops.perron.stationary.default: _stationary,
}
