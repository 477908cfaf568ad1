"""Word embedding, dropout, mix of layers, BiLSTM encoder and classifier head.

`torch.compile` does not support `nn.LSTM`, and `torch.export` unrolls it to the length
of the example input. The operator ``perron::lstm`` works with both, for any length. It
is not used in eager mode.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from perron.arguments import Device, check_at_least, check_fraction
from perron.kernels import is_eager, select
from perron.layers.encoders import Encoder


class WordEmbedding(nn.Module):
    """Embedding of token ids, with dropout on the vectors.

    Use `set_vectors` to load pretrained vectors. They are fine-tuned unless ``freeze``
    is set.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int = 300,
        freeze: bool = False,
        dropout: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Initialize random vectors with unit variance.

        Args:
            vocab_size: Number of token ids.
            embedding_dim: Size of each embedding vector.
            freeze: Whether to keep the vectors fixed during training.
            dropout: Dropout probability for the entries of the vectors.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(1, vocab_size=vocab_size, embedding_dim=embedding_dim)
        check_fraction(dropout=dropout)
        self.vectors = nn.Embedding(
            vocab_size, embedding_dim, device=device, dtype=dtype
        )
        self.vectors.weight.requires_grad_(not freeze)
        self.dropout = nn.Dropout(dropout)

    @property
    def embedding_dim(self) -> int:
        """Size of each embedding vector."""
        return self.vectors.embedding_dim

    def set_vectors(self, vectors: Float[Tensor, "v e"]) -> None:
        """Copy pretrained vectors, one per token id, into the embedding."""
        expected = tuple(self.vectors.weight.shape)
        if tuple(vectors.shape) != expected:
            raise ValueError(
                f"vectors must have shape {expected}, got {tuple(vectors.shape)}."
            )
        self.vectors.load_state_dict({"weight": vectors})

    def forward(self, ids: Int[Tensor, "*words"]) -> Float[Tensor, "*words e"]:
        return self.dropout(self.vectors(ids))


class FastDropout(nn.Dropout):
    """Dropout that is about four times as fast as `nn.Dropout` on CPUs.

    On CPUs, torch draws 64 random bits per entry. This layer uses 16, so the
    probability is rounded to a multiple of 2⁻¹⁶.
    """

    def forward(self, input: Tensor) -> Tensor:
        is_fast = input.device.type == "cpu" and not torch.compiler.is_compiling()
        dropped = round(self.p * 2**16)  # out of 2**16 possible values
        if not (self.training and is_fast and 0 < dropped < 2**16):
            return super().forward(input)
        size = input.numel()
        bits = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        keep = bits.view(torch.int16)[:size].view(input.shape) >= dropped - 2**15
        return input * keep.to(input.dtype).mul_(2**16 / (2**16 - dropped))


def mix_layers(
    weights: Float[Tensor, " k"], states: Float[Tensor, "k *tokens h"]
) -> Float[Tensor, "*tokens h"]:
    """Return y = Σ_k w_k x_k in the dtype of the weights w.

    If the states x need no gradient, as the cached states of a frozen encoder do not,
    they may be in another dtype and are not copied.
    """
    if states.requires_grad or not is_eager(weights, states):
        return torch.tensordot(weights, states.to(weights.dtype), 1)
    return _MixLayers.apply(weights, states)


class _MixLayers(Function):
    """Mix of fixed states."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, states: Tensor) -> Tensor:
        ctx.save_for_backward(weights, states)
        ctx.kernels = select("mix_layers", weights)
        return ctx.kernels.forward(weights, states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.kernels.backward(grad, *ctx.saved_tensors), None


class ClassifierHead(nn.Module):
    """Classifier head of the paper: dropout, linear, tanh, dropout, linear.

    Attributes:
        temperature: Number that the logits are divided by. See
            `perron.models.Classifier.set_temperature`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_classes: int,
        hidden_dim: int = 300,
        dropout: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Initialize the two linear layers.

        Args:
            embed_dim: Width of the text vectors.
            num_classes: Number of classes.
            hidden_dim: Width of the hidden layer.
            dropout: Dropout probability before each linear layer.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_at_least(
            1, embed_dim=embed_dim, num_classes=num_classes, hidden_dim=hidden_dim
        )
        check_fraction(dropout=dropout)
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, num_classes, device=device, dtype=dtype),
        )

        self.temperature = 1.0

    def forward(self, vector: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        logits = self.layers(vector)
        return logits if self.temperature == 1 else logits / self.temperature


class TraceableLSTM(nn.RNNBase):
    """LSTM with one layer and one direction that can be compiled and exported.

    The weights have the same names and shapes as those of `nn.LSTM`. It is not a
    subclass of `nn.LSTM`, because `torch.compile` rejects any model that contains one.
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
        """Return the hidden states, (B, N, hidden_dim)."""
        if torch.compiler.is_compiling():
            weights = (self.weight_ih_l0, self.weight_hh_l0)
            return lstm_op(x, *weights, self.bias_ih_l0, self.bias_hh_l0)
        return _run_lstm(x, self._flat_weights, self.training)


def _run_lstm(x: Tensor, weights: list[Any], training: bool) -> Tensor:
    zero = x.new_zeros(1, len(x), weights[1].shape[1])
    outputs: tuple[Tensor, ...] = torch.lstm(
        x, [zero, zero], weights, True, 1, 0.0, training, False, True
    )
    return outputs[0]


@torch.library.custom_op("perron::lstm", mutates_args=())
def lstm_op(x: Tensor, w: Tensor, u: Tensor, b: Tensor, b_state: Tensor) -> Tensor:
    """Return the hidden states (B, N, H); see `_gates` for the arguments."""
    return _run_lstm(x, [w, u, b, b_state], False).contiguous()


@lstm_op.register_fake
def _(x: Tensor, w: Tensor, u: Tensor, b: Tensor, b_state: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:2], u.shape[1])


@torch.library.custom_op("perron::lstm_backward", mutates_args=())
def lstm_backward_op(
    grad: Tensor, h: Tensor, x: Tensor, w: Tensor, u: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients with respect to x, w, u and either bias; b is their sum.

    With γ = ∂ℓ/∂h, from the last token to the first:

        h' = γ_t + Uᵀ a'_{t+1},    c' = h' o (1 - tanh² c_t) + f_{t+1} c'_{t+1},
        a' = [c' g i(1-i); c' c_{t-1} f(1-f); c' i (1-g²); h' tanh c_t o(1-o)]

    where a' is the gradient with respect to the preactivations of the gates.
    """
    previous = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
    i, f, g, o = _gates(x, previous, w, u, b)
    cells = [torch.zeros_like(h[:, 0])]
    for t in range(h.shape[1]):
        cells.append(f[:, t] * cells[-1] + i[:, t] * g[:, t])
    steps = []
    grad_h, grad_c = torch.zeros_like(cells[0]), torch.zeros_like(cells[0])
    for t in range(h.shape[1] - 1, -1, -1):
        grad_h = grad[:, t] + grad_h
        tanh_c = cells[t + 1].tanh()
        grad_c = grad_c + grad_h * o[:, t] * (1 - tanh_c.square())
        parts = [
            grad_c * g[:, t] * i[:, t] * (1 - i[:, t]),
            grad_c * cells[t] * f[:, t] * (1 - f[:, t]),
            grad_c * i[:, t] * (1 - g[:, t].square()),
            grad_h * tanh_c * o[:, t] * (1 - o[:, t]),
        ]
        steps.append(torch.cat(parts, -1))
        grad_h, grad_c = steps[-1] @ u, grad_c * f[:, t]
    grad_a = torch.stack(steps[::-1], 1)
    flat = grad_a.flatten(0, 1).mT
    grad_u = flat @ previous.flatten(0, 1)
    return grad_a @ w, flat @ x.flatten(0, 1), grad_u, grad_a.sum((0, 1))


@lstm_backward_op.register_fake
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
    x: Tensor, previous: Tensor, w: Tensor, u: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    """Return the gates i, f, g, o of W x_t + U h_{t-1} + b, for all tokens at once."""
    i, f, g, o = (x @ w.mT + previous @ u.mT + b).chunk(4, -1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    x, w, u, b, b_state = inputs
    ctx.save_for_backward(output, x, w, u, b, b_state)


def _op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    h, x, w, u, b, b_state = ctx.saved_tensors
    grad_x, grad_w, grad_u, grad_b = lstm_backward_op(grad, h, x, w, u, b + b_state)
    return grad_x, grad_w, grad_u, grad_b, grad_b


def _reject_double_backward(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError("perron::lstm does not support double backward.")


lstm_op.register_autograd(_op_backward, setup_context=_setup_context)
lstm_backward_op.register_autograd(_reject_double_backward)


class BiLSTMEncoder(Encoder):
    """Bidirectional LSTM: the concatenated states of both directions, [→h_i ; ←h_i].

    The backward LSTM runs over each text reversed within its own length, so both
    directions read the tokens before the padding. Padding does not affect the states,
    and packed sequences are not needed: they take twice the time per token on a CPU
    (torch 2.13) and cannot be exported.
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
        """Initialize both directions.

        Args:
            embed_dim: Width of the word vectors.
            hidden_dim: Width of each direction.
            num_layers: Number of layers. Each reads both directions of the one below.
            dropout: Dropout probability between layers.
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
        reverse = _reverse_index(mask)
        for depth, (forward_layer, backward_layer) in enumerate(
            zip(self.forward_layers, self.backward_layers, strict=True)
        ):
            if depth:
                states = self.dropout(states)
            left_to_right = forward_layer(states)
            right_to_left = backward_layer(_reorder(states, reverse))
            states = torch.cat([left_to_right, _reorder(right_to_left, reverse)], -1)
        return states


def _stack(widths: list[int], hidden_dim: int, factory: Any) -> nn.ModuleList:
    return nn.ModuleList(
        TraceableLSTM(width, hidden_dim, **factory) for width in widths
    )


def _reverse_index(mask: Bool[Tensor, "b n"]) -> Tensor:
    """Return the index that reverses the tokens of each row and keeps the padding."""
    position = torch.arange(mask.shape[1], device=mask.device)
    last = mask.sum(1, keepdim=True) - 1
    return torch.where(mask, last - position, position)


def _reorder(states: Float[Tensor, "b n d"], index: Tensor) -> Tensor:
    return states.gather(1, index.unsqueeze(-1).expand_as(states))
