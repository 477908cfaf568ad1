"""ONNX functions for Perron's custom operators, in the ONNX text format.

`torch.export` keeps `perron::lstm`, `perron::pair_scores` and `perron::stationary` as
custom operators. The functions in this module have the same arguments, and `to_onnx`
inserts them into a traced classifier.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
import torch
from onnxscript import ir, optimizer
from torch import Tensor

from perron.integrations.export.module import ExportModule, trace

DOMAIN = "perron"

# The order of the gates is i, f, g, o in torch and i, o, f, g in ONNX.
_LSTM = """
<domain: "perron", opset_import: ["" : OPSET]>
lstm <hidden> (x, w, u, b, b_state) => (h)
{
   order = Constant <value_ints = [0, 3, 1, 2]> ()
   gates = Constant <value_ints = [4, -1]> ()
   rows = Constant <value_ints = [1, -1]> ()
   b_gates = Reshape (b, gates)
   b_ordered = Gather (b_gates, order)
   b_flat = Reshape (b_ordered, rows)
   c_gates = Reshape (b_state, gates)
   c_ordered = Gather (c_gates, order)
   c_flat = Reshape (c_ordered, rows)
   biases = Concat <axis = 1> (b_flat, c_flat)
   w_width = Shape <start = 1> (w)
   w_axes = Concat <axis = 0> (gates, w_width)
   w_gates = Reshape (w, w_axes)
   w_ordered = Gather (w_gates, order)
   w_shape = Concat <axis = 0> (rows, w_width)
   w_flat = Reshape (w_ordered, w_shape)
   u_width = Shape <start = 1> (u)
   u_axes = Concat <axis = 0> (gates, u_width)
   u_gates = Reshape (u, u_axes)
   u_ordered = Gather (u_gates, order)
   u_shape = Concat <axis = 0> (rows, u_width)
   u_flat = Reshape (u_ordered, u_shape)
   tokens = Transpose <perm = [1, 0, 2]> (x)
   output = LSTM <hidden_size: int = @hidden> (tokens, w_flat, u_flat, biases)
   second = Constant <value_ints = [1]> ()
   states = Squeeze (output, second)
   h = Transpose <perm = [1, 0, 2]> (states)
}
"""

# Scans over the targets, one against all sources: the hidden units of all pairs would
# take more memory than everything else. Masked as in torch: the lowest float for a
# padding target, zero for a padding source.
_PAIR_SCORES = """
<domain: "perron", opset_import: ["" : OPSET]>
pair_scores (x, w, mask) => (scores)
{
   texts_words = Shape (mask)
   heads_units = Shape <start = 1> (x)
   axes = Concat <axis = 0> (texts_words, heads_units)
   rows = Reshape <allowzero = 1> (x, axes)
   sides = Transpose <perm = [2, 0, 3, 1, 4]> (rows)
   a_side, b_side = Split <axis = 0, num_outputs = 2> (sides)
   first = Constant <value_ints = [0]> ()
   a = Squeeze (a_side, first)
   b = Squeeze (b_side, first)
   last = Constant <value_ints = [-1]> ()
   column = Unsqueeze (w, last)
   all_scores = Scan <num_scan_inputs = 1, scan_input_axes = [2],
     scan_output_axes = [2], body = score (float[b, h, k] target)
       => (float[b, h, n] target_scores)
   {
      third = Constant <value_ints = [2]> ()
      one_target = Unsqueeze (target, third)
      total = Add (one_target, b)
      hidden = ACTIVATION (total)
      product = MatMul (hidden, column)
      minus = Constant <value_ints = [-1]> ()
      target_scores = Squeeze (product, minus)
   }> (a)
   target_axes = Constant <value_ints = [1, 3]> ()
   targets = Unsqueeze (mask, target_axes)
   source_axes = Constant <value_ints = [1, 2]> ()
   sources = Unsqueeze (mask, source_axes)
   zero = Constant <value = float {0.0}> ()
   source_scores = Where (sources, all_scores, zero)
   lowest = Constant <value = float {-3.4028234663852886e38}> ()
   scores = Where (targets, source_scores, lowest)
}
"""

# GTH elimination (Grassmann, Taksar and Heyman), as in `perron.kernels.gth_torch`, but
# entirely in double precision, whose range needs no scaling. A zero edge counts as
# 2**-222. The mask must have all tokens before the padding. `eliminate` removes the
# last word from the graph; `fill_in` computes the weights in reverse order.
_STATIONARY = """
<domain: "perron", opset_import: ["" : OPSET]>
stationary (edges, mask) => (weights)
{
   first = Constant <value_ints = [0]> ()
   second = Constant <value_ints = [1]> ()
   third = Constant <value_ints = [2]> ()
   zero = Constant <value = double {0.0}> ()
   one = Constant <value = double {1.0}> ()
   smallest = Constant <value = double {1.4836e-67}> ()
   true = Constant <value = bool {1}> ()
   begin = Constant <value_int = 0> ()
   unit = Constant <value_int = 1> ()

   words = Shape <start = 1, end = 2> (mask)
   used = Cast <to = 11> (mask)
   used_targets = Unsqueeze (used, third)
   used_sources = Unsqueeze (used, second)
   pairs = Mul (used_targets, used_sources)
   double_edges = Cast <to = 11> (edges)
   positive = Max (double_edges, smallest)
   rates = Mul (positive, pairs)
   count = Squeeze (words, first)
   steps = Sub (count, unit)
   positions = Range (begin, count, unit)

   left, shares = Loop (steps, true, rates) <body = eliminate
     (int64 step, bool more, double[b, k, k] now)
       => (bool again, double[b, j, j] next, double[b, l, n] row)
   {
      again = Identity (more)
      size = Shape <start = 1, end = 2> (now)
      k = Sub (size, second)
      cut = Concat <axis = 0> (k, second)
      upper, lower = Split <axis = 1> (now, cut)
      among, out = Split <axis = 2> (upper, cut)
      into = Slice (lower, first, k, third)
      leaving = ReduceSum (out, second)
      isolated = Equal (leaving, zero)
      divisor = Where (isolated, one, leaving)
      share = Div (into, divisor)
      through = Mul (out, share)
      next = Add (among, through)
      after_row = Sub (words, k)
      before_row = Constant <value_ints = [0, 0, 0, 0, 0]> ()
      padding = Concat <axis = 0> (before_row, after_row)
      row = Pad (share, padding)
   }>

   is_first = Equal (positions, begin)
   at_first = Cast <to = 11> (is_first)
   start_row = Mul (used, at_first)
   start = Unsqueeze (start_row, third)
   unscaled = Loop (steps, true, start) <body = fill_in
     (int64 turn, bool more_words, double[b, n, l] x)
       => (bool once_more, double[b, n, l] filled)
   {
      once_more = Identity (more_words)
      after = Add (turn, unit)
      index = Sub (steps, after)
      share_row = Gather <axis = 0> (shares, index)
      weight = MatMul (share_row, x)
      is_current = Equal (positions, after)
      one_hot_row = Cast <to = 11> (is_current)
      one_hot = Unsqueeze (one_hot_row, second)
      new_entry = Mul (weight, one_hot)
      extended = Add (x, new_entry)
      sum = ReduceSum (extended, second)
      at_least_one = Max (sum, one)
      filled = Div (extended, at_least_one)
   }>

   flat = Squeeze (unscaled, third)
   total = ReduceSum (flat, second)
   empty = Equal (total, zero)
   safe = Where (empty, one, total)
   exact = Div (flat, safe)
   weights = CastLike (exact, edges)
}
"""


def functions(opset: int) -> list[onnx.FunctionProto]:
    """Return the ONNX functions; pair scores have one per activation."""
    texts = [_LSTM, _STATIONARY]
    for name, operator in (("tanh", "Tanh"), ("relu", "Relu")):
        text = _PAIR_SCORES.replace("pair_scores (", f"pair_scores_{name} (")
        texts.append(text.replace("ACTIVATION", operator))
    return [
        onnx.parser.parse_function(text.replace("OPSET", str(opset))) for text in texts
    ]


OPSETS = range(18, 24)  # that have these operators and that torch can export
DEFAULT_OPSET = 20


def check_opset(opset: int) -> None:
    """Raise a ValueError for an opset that is not supported."""
    if opset not in OPSETS:
        raise ValueError(
            f"opset must be from {OPSETS[0]} to {OPSETS[-1]}, got {opset}."
        )


def to_onnx(module: ExportModule, opset: int = DEFAULT_OPSET) -> ir.Model:
    """Convert a module to an ONNX model that has only standard operators."""
    with _suppress_warnings():
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
            definition = ir.serde.deserialize_function(function)
            model.functions[definition.identifier()] = definition
        model.opset_imports[DOMAIN] = 1
        # Fold all constants, however large.
        optimizer.optimize_ir(model, input_size_limit=2**40, output_size_limit=2**40)
    _name_axes(model.graph.inputs, module.inputs)
    _name_axes(model.graph.outputs, module.outputs)
    return model


def _name_axes(values: Sequence[ir.Value], names: Mapping[str, Sequence[str]]) -> None:
    for value in values:
        axes = names[str(value.name)]
        shape = value.shape
        assert shape is not None
        value.shape = ir.Shape(
            [
                size if isinstance(size, int) else axis
                for size, axis in zip(shape, axes, strict=True)
            ]
        )


@contextmanager
def _suppress_warnings() -> Iterator[None]:
    """Hide warnings of torch and onnxscript that do not concern the user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`isinstance.treespec", FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
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
    return weights, weights  # the factors are not used


def _call(
    name: str,
    inputs: Sequence[Tensor],
    dtype: torch.dtype,
    shape: Sequence[int | torch.SymInt],
    attributes: dict[str, Any] | None = None,
) -> Tensor:
    """Return a placeholder for a call of one of the ONNX functions."""
    return torch.onnx.ops.symbolic(
        f"{DOMAIN}::{name}", inputs, attributes, dtype=dtype, shape=shape, version=1
    )


_CALLS = {
    torch.ops.perron.lstm.default: _lstm,
    torch.ops.perron.pair_scores.default: _pair_scores,
    torch.ops.perron.stationary.default: _stationary,
}
