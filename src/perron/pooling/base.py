"""The contract of every aggregator: states and a mask in, one vector per text out."""

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
    is_packable,
    pack,
)
from perron.registry import Registry
from perron.solver import SolverInfo


def mask_of(lengths: Int[Tensor, " b"]) -> Bool[Tensor, "b n"]:
    """Return a mask with as many words of each text at its beginning."""
    longest = int(lengths.max()) if len(lengths) else 0
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)


class PoolingOutput(NamedTuple):
    """What pooling found. ``None`` means that this aggregator has no such thing.

    For flat states the weights are flat too, (M) and (H, M); edges stay (B, N, N), with
    N the words of the longest text, and zero beyond a text's own.
    """

    vector: Float[Tensor, "b out"]
    weights: Float[Tensor, "b n"] | None = None  # mean of head_weights
    edges: Float[Tensor, "b n n"] | None = None  # from j to i; mean of head_edges
    solver_info: SolverInfo | None = None  # a value for each text and head: (B, H)
    head_weights: Float[Tensor, "b h n"] | None = None
    head_edges: Float[Tensor, "b h n n"] | None = None


AGGREGATORS: Registry[type["Aggregator"]] = Registry("aggregator")
"""The aggregators by their names in recipes."""


class Aggregator(nn.Module, ABC):
    """Pools the states of a text's tokens into one vector.

    `forward` keeps the promises that all aggregators share. The inputs are left alone.
    What lies under the padding is never read. A text with no tokens gets a zero vector,
    zero weights and zero gradient. Half precision is pooled in float32.

    A subclass writes `aggregate`, and sets ``out_dim`` if it is not ``embed_dim``. With a
    ``recipe_name`` of its own it can be named in recipes as soon as its module is
    imported, and its settings are the arguments of its constructor. Each of them needs
    an annotation, and a default if it may be left out.

    Attributes:
        recipe_name: Name in recipes; None for a class that recipes cannot name.
        has_weights: Whether `aggregate` returns the weights of the tokens.
        has_graph: Whether `aggregate` returns edges if ``need_edges`` is True.
        heads_option: The option that is the number of weightings, if there is one.
        embed_dim: Width of the states; None for any width.
        out_dim: Width of a text's vector; not set if ``embed_dim`` is None.
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
        """Set up an aggregator without parameters.

        Args:
            embed_dim: Width of the states. Defaults to any width.
            device: Device of the parameters, if there are any.
            dtype: Data type of the parameters, if there are any.
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
            states: (B, N, D) with D = ``embed_dim``; or flat, (M, D), the tokens of all texts
                one after the other, with ``lengths`` or ``offsets``.
            mask: True (or 1) on tokens, False (or 0) on padding; (B, N), any pattern.
                Defaults to no padding.
            lengths: (B), the number of tokens of each text, for flat states. These work
                in eager mode; `torch.compile(fullgraph=True)` needs padded states.
            offsets: (B + 1), where each text begins and the last one ends, instead of
                lengths: 0 … M. Other libraries call them ``ptr`` or ``cu_seqlens``.
            need_edges: Return the word graph too, if this aggregator has one.
        """
        batch = check_batch(self.embed_dim, states, mask, lengths, offsets)
        pooled = run(lambda tokens: self.aggregate(tokens, need_edges), batch)
        if (pooled.weights is None) == self.has_weights:
            given = "no weights" if self.has_weights else "weights"
            raise TypeError(
                f"{type(self).__name__}.has_weights must be {not self.has_weights}, as "
                f"aggregate returns {given}"
            )
        return pooled

    @abstractmethod
    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        """Pool words whose states are float32 or float64.

        Args:
            tokens: The states, and sums over each text.
            need_edges: Whether the caller wants ``head_edges``.

        Returns:
            ``vector``; of the weights only ``head_weights``, (…, H) as in `TokenBatch`; of
            the edges only ``head_edges``, (B, H, N, N). `weighted_sum` makes it from
            weights.
        """

    def reset_parameters(self) -> None:
        """Initialize all parameters again, as the constructor did."""
        reset_children(self)

    def extra_repr(self) -> str:
        return "" if self.embed_dim is None else f"{self.embed_dim}"


def reset_children(module: nn.Module) -> None:
    """Call ``reset_parameters`` of the modules inside, at whatever depth they have it.

    Raises:
        TypeError: A module has parameters and no ``reset_parameters``.
    """
    if next(module.parameters(recurse=False), None) is not None:
        raise TypeError(
            f"{type(module).__name__} must define reset_parameters, as it has "
            "parameters of its own"
        )
    for child in module.children():
        reset = getattr(child, "reset_parameters", None)
        if reset is None:
            reset_children(child)
        else:
            reset()


class PoolingInput(NamedTuple):
    """States as the caller gave them, and where the words of each text are."""

    states: Tensor
    mask: Bool[Tensor, "b n"]
    flat: bool


def check_batch(
    embed_dim: int | None,
    states: Tensor,
    mask: Tensor | None,
    lengths: Tensor | Sequence[int] | None,
    offsets: Tensor | Sequence[int] | None,
) -> PoolingInput:
    """Refuse what no aggregator takes; the arguments are those of its `forward`."""
    for name, given in (("states", states), ("mask", mask)):
        if given is not None and not isinstance(given, Tensor):
            raise ValueError(f"{name} must be a tensor, but came as {type(given)}")
    flat = lengths is not None or offsets is not None
    width = "D" if embed_dim is None else embed_dim
    shape = f"(M, {width})" if flat else f"(B, N, {width})"
    wrong = embed_dim is not None and states.shape[-1] != embed_dim
    if states.ndim != (2 if flat else 3) or wrong:
        advice = ""
        if states.ndim == 2 and not flat:
            advice = "; flat states need lengths or offsets"
        elif states.ndim == 3 and flat:
            advice = "; padded states have a mask, not lengths or offsets"
        raise ValueError(
            f"states must have shape {shape}, but came as {tuple(states.shape)}{advice}"
        )
    if not states.is_floating_point():
        raise ValueError(f"states must be floating point, but came as {states.dtype}")
    if not flat:
        return PoolingInput(states, _check_mask(states, mask), flat)
    if mask is not None:
        raise ValueError("flat states have no padding: leave out the mask")
    return PoolingInput(states, mask_of(check_lengths(states, lengths, offsets)), flat)


def _check_mask(states: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return states.new_ones(states.shape[:2], dtype=torch.bool)
    if mask.shape != states.shape[:2]:
        raise ValueError(
            f"mask must have shape {tuple(states.shape[:2])} to fit states of "
            f"shape {tuple(states.shape)}, but came as {tuple(mask.shape)}"
        )
    if mask.device != states.device:
        raise ValueError(f"mask is on {mask.device}, but states are on {states.device}")
    return bool_mask(mask)


def run(
    aggregate: Callable[[TokenBatch], PoolingOutput], batch: PoolingInput
) -> PoolingOutput:
    """Pool in float32 or float64, whatever the caller's dtype, and finish what is left.

    ``aggregate`` gives of the weights only ``head_weights``, (…, H) as in `TokenBatch`, and
    of the edges only ``head_edges``.
    """
    states, mask, flat = batch
    working = torch.float64 if states.dtype == torch.float64 else torch.float32
    with _without_autocast(states.device.type):
        if flat:
            tokens: TokenBatch = RaggedTokens(states.to(working), mask)
        else:
            tokens = _arrange(states, mask, working)
        pooled = aggregate(tokens)
        weights, edges = pooled.head_weights, pooled.head_edges
        if weights is not None:
            weights = weights.mT if flat else tokens.to_padded(weights).mT
            mean = weights.mean(-2)
            pooled = pooled._replace(weights=mean, head_weights=weights)
        if edges is not None:
            pooled = pooled._replace(edges=edges.mean(1))
    if states.dtype == working:
        return pooled
    return PoolingOutput(*(_narrow(value, states.dtype) for value in pooled))


def _arrange(states: Tensor, mask: Tensor, working: torch.dtype) -> TokenBatch:
    """Leave padding behind where that does not stand in the way of tracing."""
    if is_packable(states):
        tokens = pack(states, mask)
        return RaggedTokens(tokens.states.to(working), mask)
    return PaddedTokens(states.masked_fill(~mask.unsqueeze(-1), 0).to(working), mask)


def _without_autocast(device: str) -> AbstractContextManager[None]:
    available = torch.amp.is_autocast_available(device)
    if available and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def _narrow(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) else value


def project(layer: nn.Linear, states: Float[Tensor, "*batch d"]) -> Tensor:
    """Apply a layer in the precision of the states, whatever its own."""
    if layer.weight.dtype == states.dtype:
        return layer(states)
    bias = None if layer.bias is None else layer.bias.to(states.dtype)
    return F.linear(states, layer.weight.to(states.dtype), bias)


def project_pair(
    first: nn.Linear, second: nn.Linear, states: Float[Tensor, "*batch d"]
) -> Tensor:
    """Apply two layers side by side in one product: the states are read once."""
    weight = torch.cat([first.weight, second.weight]).to(states.dtype)
    biases: list[Tensor] = [
        torch.zeros_like(layer.weight[:, 0]) if layer.bias is None else layer.bias
        for layer in (first, second)
    ]
    return F.linear(states, weight, torch.cat(biases).to(states.dtype))


def weighted_sum(
    weights: Float[Tensor, "*words h"], tokens: TokenBatch
) -> PoolingOutput:
    """Concatenate Σ_i α_i h_i of each head."""
    return PoolingOutput(tokens.weighted_sum(weights).flatten(1), head_weights=weights)
