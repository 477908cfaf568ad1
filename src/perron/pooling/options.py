"""Which options of the word graph make sense, and which go together."""

import math

from perron.pooling.pair_scores import ACTIVATIONS

VALUES = ("states", "flow")


def check_activation(activation: str) -> None:
    """Refuse an activation that is not offered."""
    if activation not in ACTIVATIONS:
        options = " or ".join(f'"{name}"' for name in ACTIVATIONS)
        raise ValueError(f"activation must be {options}, but came as {activation!r}")


def check_options(
    connectivity: str, source_scale: float, edge_dropout: float, values: str
) -> None:
    """Refuse options of `CentralityPool` that are wrong or that change nothing."""
    if not 0 < source_scale < math.inf:
        raise ValueError(
            f"source_scale must be positive and finite, but came as {source_scale}"
        )
    if not 0 <= edge_dropout < 1:
        raise ValueError(
            f"edge_dropout must be at least 0 and below 1, but came as {edge_dropout}"
        )
    if values not in VALUES:
        options = " or ".join(f'"{name}"' for name in VALUES)
        raise ValueError(f"values must be {options}, but came as {values!r}")
    if connectivity == "query" and source_scale != 1:
        raise ValueError(
            'source_scale must be 1 if connectivity is "query", whose edges do not '
            f"depend on where they come from, but came as {source_scale}"
        )
    if connectivity == "low_rank" and edge_dropout > 0:
        raise ValueError(
            'edge_dropout must be 0 if connectivity is "low_rank", which has no matrix '
            f"of edges, but came as {edge_dropout}"
        )
    if connectivity == "low_rank" and values != "states":
        raise ValueError(
            'values must be "states" if connectivity is "low_rank", which has no '
            f"matrix of edges, but came as {values!r}"
        )
