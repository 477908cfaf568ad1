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
    connectivity: str,
    source_scale: float,
    edge_dropout: float,
    values: str,
    reach: int,
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
    if reach < 0:
        raise ValueError(f"reach must be at least 0, but came as {reach}")
    if values not in VALUES:
        options = " or ".join(f'"{name}"' for name in VALUES)
        raise ValueError(f"values must be {options}, but came as {values!r}")
    if connectivity == "query" and source_scale != 1:
        raise ValueError(
            'source_scale must be 1 if connectivity is "query", whose edges do not '
            f"depend on where they come from, but came as {source_scale}"
        )
    if connectivity != "low_rank":
        return
    for name, value, usual in (
        ("edge_dropout", edge_dropout, 0),
        ("values", values, "states"),
        ("reach", reach, 0),
    ):
        if value != usual:
            raise ValueError(
                f'{name} must be {usual!r} if connectivity is "low_rank", which has no '
                f"matrix of edges, but came as {value!r}"
            )
