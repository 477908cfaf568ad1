"""Base class of aggregators, which pool token states into one vector per text."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from perron.arguments import Device, bool_mask, check_at_least, check_lengths
from perron.pooling.tokens import (
    PaddedTokens,
    RaggedTokens,
    TokenBatch,
    pack,
    should_pack,
)
from perron.registry import Registry
from perron.solver import SolverInfo


def mask_from_lengths(lengths: Int[Tensor, " b"]) -> Bool[Tensor, "b n"]:
    """Return a mask that is True on the first ``lengths[b]`` positions of text b."""
    max_length = int(lengths.max()) if len(lengths) else 0
    return torch.arange(max_length, device=lengths.device) < lengths.unsqueeze(1)


class PoolingOutput(NamedTuple):
    """Result of pooling. A field is ``None`` if the aggregator does not provide it.

    For ragged states, the weights are ragged too, (M) and (H, M). Edges are always
    (B, N, N), where N is the length of the longest text, with zeros as padding.
    """

    vector: Float[Tensor, "b out"]
    weights: Float[Tensor, "b n"] | None = None  # mean of head_weights
    edges: Float[Tensor, "b n n"] | None = None  # j -> i; mean of head_edges
    solver_info: SolverInfo | None = None  # (B, H), per text and head
    head_weights: Float[Tensor, "b h n"] | None = None
    head_edges: Float[Tensor, "b h n n"] | None = None


AGGREGATORS: Registry[type["Aggregator"]] = Registry("aggregator")
"""Aggregators by recipe name."""


class Aggregator(nn.Module, ABC):
    """Base class for all aggregators, which pool the states of each text's tokens.

    `forward` guarantees for all aggregators that the inputs are not modified, that
    padding is never read, that a text with no tokens gets a zero vector, zero weights
    and zero gradients, and that half-precision states are pooled in float32.

    A subclass implements `aggregate`, and sets ``out_dim`` if it differs from
    ``embed_dim``. If it defines a ``recipe_name``, recipes can refer to it as soon as
    its module is imported. Its settings are then the arguments of its constructor, each
    of which needs a type annotation, and a default if it is optional.

    Attributes:
        recipe_name: Name in recipes. None if recipes cannot refer to the class.
        has_weights: Whether `aggregate` returns the weights of the tokens.
        has_graph: Whether `aggregate` returns edges if ``need_edges`` is True.
        heads_option: Name of the option that sets the number of heads, if any.
        embed_dim: Dimension of the states. None for any dimension.
        out_dim: Dimension of the pooled vector. Not set if ``embed_dim`` is None.
    """

    recipe_name: ClassVar[str | None] = None
    has_weights: ClassVar[bool] = True
    has_graph: ClassVar[bool] = False
    heads_option: ClassVar[str | None] = None
    embed_dim: int | None
    out_dim: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("recipe_name") is not None:
            AGGREGATORS.register(cls.__dict__["recipe_name"], cls)

    def __init__(
        self,
        embed_dim: int | None = None,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Initialize an aggregator without parameters.

        Args:
            embed_dim: Dimension of the states. None accepts any dimension.
            device: Device of the parameters, if any.
            dtype: Data type of the parameters, if any.
        """
        super().__init__()
        self.embed_dim = embed_dim
        if embed_dim is not None:
            check_at_least(1, embed_dim=embed_dim)
            self.out_dim = embed_dim

    def forward(
        self,
        states: Tensor,
        mask: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        offsets: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
    ) -> PoolingOutput:
        """Pool each text.

        Args:
            states: Padded states (B, N, D) with D = ``embed_dim``, or ragged states
                (M, D), the concatenated tokens of all texts, with ``lengths`` or
                ``offsets``.
            mask: (B, N), True (or 1) on tokens and False (or 0) on padding, in any
                pattern. Defaults to no padding.
            lengths: (B), number of tokens in each text, for ragged states. Supported in
                eager mode; `torch.compile(fullgraph=True)` needs padded states.
            offsets: (B + 1), start of each text, followed by M. An alternative to
                lengths that other libraries call ``ptr`` or ``cu_seqlens``.
            need_edges: Whether to return the word graph, if the aggregator has one.
        """
        inputs = check_inputs(self.embed_dim, states, mask, lengths, offsets)
        output = pool_inputs(lambda tokens: self.aggregate(tokens, need_edges), inputs)
        if (output.weights is None) == self.has_weights:
            returned = "no weights" if self.has_weights else "weights"
            raise TypeError(
                f"{type(self).__name__}.has_weights must be {not self.has_weights}, "
                f"because aggregate returns {returned}."
            )
        return output

    @abstractmethod
    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        """Pool tokens whose states are float32 or float64.

        Args:
            tokens: States of the tokens, with reductions over each text.
            need_edges: Whether to return ``head_edges``.

        Returns:
            Output with ``vector``, ``head_weights`` (…, H) as in `TokenBatch`, and
            ``head_edges`` (B, H, N, N). The means over heads are added by `forward`.
            Use `weighted_sum` to build it from weights.
        """

    def reset_parameters(self) -> None:
        """Reinitialize all parameters as in the constructor."""
        reset_children(self)

    def extra_repr(self) -> str:
        return "" if self.embed_dim is None else f"{self.embed_dim}"


def reset_children(module: nn.Module) -> None:
    """Call ``reset_parameters`` of all submodules that define it.

    Raises:
        TypeError: If a module has parameters but no ``reset_parameters``.
    """
    if next(module.parameters(recurse=False), None) is not None:
        raise TypeError(
            f"{type(module).__name__} must define reset_parameters, because it has "
            "parameters."
        )
    for child in module.children():
        reset = getattr(child, "reset_parameters", None)
        if reset is None:
            reset_children(child)
        else:
            reset()


class PoolingInput(NamedTuple):
    """Validated states and mask."""

    states: Tensor
    mask: Bool[Tensor, "b n"]
    ragged: bool


def check_inputs(
    embed_dim: int | None,
    states: Tensor,
    mask: Tensor | None,
    lengths: Tensor | Sequence[int] | None,
    offsets: Tensor | Sequence[int] | None,
) -> PoolingInput:
    """Validate the arguments of `Aggregator.forward`."""
    for name, value in (("states", states), ("mask", mask)):
        if value is not None and not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(value)}.")
    ragged = lengths is not None or offsets is not None
    dim = "D" if embed_dim is None else embed_dim
    shape = f"(M, {dim})" if ragged else f"(B, N, {dim})"
    wrong_dim = embed_dim is not None and states.shape[-1] != embed_dim
    if states.ndim != (2 if ragged else 3) or wrong_dim:
        hint = ""
        if states.ndim == 2 and not ragged:
            hint = " Ragged states require lengths or offsets."
        elif states.ndim == 3 and ragged:
            hint = " For padded states, pass a mask instead of lengths or offsets."
        raise ValueError(
            f"states must have shape {shape}, got {tuple(states.shape)}.{hint}"
        )
    if not states.is_floating_point():
        raise ValueError(f"states must be floating point, got {states.dtype}.")
    if not ragged:
        return PoolingInput(states, _check_mask(states, mask), ragged)
    if mask is not None:
        raise ValueError("mask must be None for ragged states, which have no padding.")
    mask = mask_from_lengths(check_lengths(states, lengths, offsets))
    return PoolingInput(states, mask, ragged)


def _check_mask(states: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return states.new_ones(states.shape[:2], dtype=torch.bool)
    if mask.shape != states.shape[:2]:
        raise ValueError(
            f"mask must have shape {tuple(states.shape[:2])} to fit states of "
            f"shape {tuple(states.shape)}, got {tuple(mask.shape)}."
        )
    if mask.device != states.device:
        raise ValueError(
            f"mask must be on {states.device}, like states, got {mask.device}."
        )
    return bool_mask(mask)


def pool_inputs(
    aggregate: Callable[[TokenBatch], PoolingOutput], inputs: PoolingInput
) -> PoolingOutput:
    """Pool in float32 or float64, and complete the output.

    ``aggregate`` returns ``head_weights``, (…, H) as in `TokenBatch`, and
    ``head_edges``. This function adds their means over heads, and converts the output
    to the dtype of the states.
    """
    states, mask, ragged = inputs
    dtype = torch.float64 if states.dtype == torch.float64 else torch.float32
    with _disable_autocast(states.device.type):
        if ragged:
            tokens: TokenBatch = RaggedTokens(states.to(dtype), mask)
        else:
            tokens = _make_tokens(states, mask, dtype)
        output = aggregate(tokens)
        weights, edges = output.head_weights, output.head_edges
        if weights is not None:
            weights = weights.mT if ragged else tokens.to_padded(weights).mT
            mean = weights.mean(-2)
            output = output._replace(weights=mean, head_weights=weights)
        if edges is not None:
            output = output._replace(edges=edges.mean(1))
    if states.dtype == dtype:
        return output
    return PoolingOutput(*(_to_dtype(value, states.dtype) for value in output))


def _make_tokens(states: Tensor, mask: Tensor, dtype: torch.dtype) -> TokenBatch:
    """Remove the padding if that is possible and fast, otherwise zero it."""
    if should_pack(states):
        tokens = pack(states, mask)
        return RaggedTokens(tokens.states.to(dtype), mask)
    return PaddedTokens(states.masked_fill(~mask.unsqueeze(-1), 0).to(dtype), mask)


def _disable_autocast(device: str) -> AbstractContextManager[None]:
    available = torch.amp.is_autocast_available(device)
    if available and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def _to_dtype(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) else value


def project(layer: nn.Linear, states: Float[Tensor, "*batch d"]) -> Tensor:
    """Apply a layer in the dtype of the states, whatever the dtype of the layer."""
    if layer.weight.dtype == states.dtype:
        return layer(states)
    bias = None if layer.bias is None else layer.bias.to(states.dtype)
    return F.linear(states, layer.weight.to(states.dtype), bias)


def project_pair(
    first: nn.Linear, second: nn.Linear, states: Float[Tensor, "*batch d"]
) -> Tensor:
    """Apply two layers in one matrix product, and concatenate the results."""
    weight = torch.cat([first.weight, second.weight]).to(states.dtype)
    biases: list[Tensor] = [
        torch.zeros_like(layer.weight[:, 0]) if layer.bias is None else layer.bias
        for layer in (first, second)
    ]
    return F.linear(states, weight, torch.cat(biases).to(states.dtype))


def weighted_sum(
    weights: Float[Tensor, "*tokens h"], tokens: TokenBatch
) -> PoolingOutput:
    """Return the output with the concatenated vectors Σ_i α_i h_i of all heads."""
    return PoolingOutput(tokens.weighted_sum(weights).flatten(1), head_weights=weights)
