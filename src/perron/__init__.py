"""Pooling of token vectors by eigenvector centrality."""

from typing import TYPE_CHECKING, Any

from perron.pooling import (
    Aggregator,
    CentralityPool,
    Connectivity,
    DynamicRoutingPool,
    FirstPool,
    GraphCentralityPool,
    IntraAttentionPool,
    MaxPool,
    MeanPool,
    PoolingOutput,
    PowerIteration,
    SelfAttentionPool,
    TokenBatch,
    project,
    weighted_sum,
)
from perron.solver import (
    PowerIterationResult,
    SolverInfo,
    power_iteration,
    stationary_distribution,
)

if TYPE_CHECKING:
    from perron.pipeline import Pipeline, load

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "CentralityPool",
    "Connectivity",
    "DynamicRoutingPool",
    "FirstPool",
    "GraphCentralityPool",
    "IntraAttentionPool",
    "MaxPool",
    "MeanPool",
    "Pipeline",
    "PoolingOutput",
    "PowerIteration",
    "PowerIterationResult",
    "SelfAttentionPool",
    "SolverInfo",
    "TokenBatch",
    "load",
    "power_iteration",
    "project",
    "stationary_distribution",
    "weighted_sum",
]


def __getattr__(name: str) -> Any:
    """Import the names that need the extra ``train`` on first access."""
    if name not in ("Pipeline", "load"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from perron import pipeline
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"perron.{name} requires {error.name}. Install it with: pip install "
            "'perron[train]'",
            name=error.name,
        ) from error
    return getattr(pipeline, name)
