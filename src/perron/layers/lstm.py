"""The BiLSTM encoder, and one direction of an LSTM as an operator.

`torch.compile` does not take `nn.LSTM`; `torch.export` would write out its steps for
the one length of its example. `perron::lstm` is taken as it is, whatever the length.
Eager calls do without it.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from perron.arguments import Device, check_at_least, check_fraction
from perron.layers.encoders import Encoder


class TraceableLSTM(nn.RNNBase):
    """An `nn.LSTM` of one layer and one direction, weights alike, that can be traced.

    `torch.compile` refuses every `nn.LSTM` that it sees, used or not.
    """

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        factory: Any = {"device": device, "dtype": dtype}
        super().__init__("LSTM", embed_dim, hidden_dim, batch_first=True, **factory)

    def forward(self, x: Float[Tensor, "b n e"]) -> Float[Tensor, "b n h"]:
        """Return the states, (B, N, hidden_dim)."""
        if torch.compiler.is_compiling():
            weights = (self.weight_ih_l0, self.weight_hh_l0)
            return lstm_op(x, *weights, self.bias_ih_l0, self.bias_hh_l0)
        return _states(x, self._flat_weights, self.training)


def _states(x: Tensor, weights: list[Any], training: bool) -> Tensor:
    zero = x.new_zeros(1, len(x), weights[1].shape[1])
    found: tuple[Tensor, ...] = torch.lstm(
        x, [zero, zero], weights, True, 1, 0.0, training, False, True
    )
    return found[0]


@torch.library.custom_op("perron::lstm", mutates_args=())
def lstm_op(x: Tensor, w: Tensor, u: Tensor, b: Tensor, b_state: Tensor) -> Tensor:
    """Return the states (B, N, H): the letters are those of `_gates`."""
    return _states(x, [w, u, b, b_state], False).contiguous()


@lstm_op.register_fake
def _(x: Tensor, w: Tensor, u: Tensor, b: Tensor, b_state: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:2], u.shape[1])


@torch.library.custom_op("perron::lstm_backward", mutates_args=())
def adjoint_op(
    grad: Tensor, h: Tensor, x: Tensor, w: Tensor, u: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients to x, w, u and each of both biases, b being their sum.

    With γ = ∂ℓ/∂h, from the last word to the first:

        h' = γ_t + Uᵀ a'_{t+1},    c' = h' o (1 - tanh² c_t) + f_{t+1} c'_{t+1},
        a' = [c' g i(1-i); c' c_{t-1} f(1-f); c' i (1-g²); h' tanh c_t o(1-o)]

    where a' is the gradient to what the gates are functions of.
    """
    before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
    i, f, g, o = _gates(x, before, w, u, b)
    cells = [torch.zeros_like(h[:, 0])]
    for t in range(h.shape[1]):
        cells.append(f[:, t] * cells[-1] + i[:, t] * g[:, t])
    slopes = []
    to_h, to_c = torch.zeros_like(cells[0]), torch.zeros_like(cells[0])
    for t in range(h.shape[1] - 1, -1, -1):
        to_h = grad[:, t] + to_h
        shown = cells[t + 1].tanh()
        to_c = to_c + to_h * o[:, t] * (1 - shown.square())
        parts = [
            to_c * g[:, t] * i[:, t] * (1 - i[:, t]),
            to_c * cells[t] * f[:, t] * (1 - f[:, t]),
            to_c * i[:, t] * (1 - g[:, t].square()),
            to_h * shown * o[:, t] * (1 - o[:, t]),
        ]
        slopes.append(torch.cat(parts, -1))
        to_h, to_c = slopes[-1] @ u, to_c * f[:, t]
    a = torch.stack(slopes[::-1], 1)
    flat = a.flatten(0, 1).mT
    to_u = flat @ before.flatten(0, 1)
    return a @ w, flat @ x.flatten(0, 1), to_u, a.sum((0, 1))


@adjoint_op.register_fake
def _(
    grad: Tensor, h: Tensor, x: Tensor, w: Tensor, u: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        x.new_empty(x.shape),
        w.new_empty(w.shape),
        u.new_empty(u.shape),
        b.new_empty(b.shape),
    )


def _gates(
    x: Tensor, before: Tensor, w: Tensor, u: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    """Return i, f, g, o of W x_t + U h_{t-1} + b, for all words at once."""
    i, f, g, o = (x @ w.mT + before @ u.mT + b).chunk(4, -1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    x, w, u, b, b_state = inputs
    ctx.save_for_backward(output, x, w, u, b, b_state)


def _op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    h, x, w, u, b, b_state = ctx.saved_tensors
    *rest, to_bias = adjoint_op(grad, h, x, w, u, b + b_state)
    return (*rest, to_bias, to_bias)


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError("a compiled LSTM can be differentiated once, not twice")


lstm_op.register_autograd(_op_backward, setup_context=_remember)
adjoint_op.register_autograd(_refuse)


class BiLSTMEncoder(Encoder):
    """[→h_i ; ←h_i], each direction of width ``hidden``.

    Two networks, each of which reads words first and padding last: the second gets
    every text turned round within its own length. So padding changes no word's state,
    without packed sequences, which cost twice the time per word on a CPU (torch 2.13)
    and do not export.
    """

    recipe_name = "bilstm"
    width_option = "hidden_dim"

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int = 300,
        num_layers: int = 1,
        dropout: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up both directions.

        Args:
            embed_dim: Width of the word vectors.
            hidden_dim: Width of each direction.
            num_layers: Number of num_layers, each reading both directions of the one below.
            dropout: Dropout between layers.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(1, hidden_dim=hidden_dim, num_layers=num_layers)
        check_fraction(dropout=dropout)
        self.out_dim = 2 * hidden_dim
        self.dropout = nn.Dropout(dropout)
        widths = [embed_dim] + [2 * hidden_dim] * (num_layers - 1)
        factory: Any = {"device": device, "dtype": dtype}
        self.forward_layers = _stack(widths, hidden_dim, factory)
        self.backward_layers = _stack(widths, hidden_dim, factory)

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        turned = _turned(mask)
        for depth, (forward_layer, backward_layer) in enumerate(
            zip(self.forward_layers, self.backward_layers, strict=True)
        ):
            if depth:
                states = self.dropout(states)
            ahead = forward_layer(states)
            behind = backward_layer(_reorder(states, turned))
            states = torch.cat([ahead, _reorder(behind, turned)], -1)
        return states


def _stack(widths: list[int], hidden_dim: int, factory: Any) -> nn.ModuleList:
    return nn.ModuleList(
        TraceableLSTM(width, hidden_dim, **factory) for width in widths
    )


def _turned(mask: Bool[Tensor, "b n"]) -> Tensor:
    """Return for each cell which cell comes there when words stand in reverse."""
    position = torch.arange(mask.shape[1], device=mask.device)
    last = mask.sum(1, keepdim=True) - 1
    return torch.where(mask, last - position, position)


def _reorder(states: Float[Tensor, "b n d"], order: Tensor) -> Tensor:
    return states.gather(1, order.unsqueeze(-1).expand_as(states))
