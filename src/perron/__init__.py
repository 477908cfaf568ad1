"""Pool a variable number of word vectors into one by eigenvector centrality."""

from perron.pooling import (
    Aggregator,
    CentralityPool,
    DynamicRoutingPool,
    GraphCentralityPool,
    IntraAttentionPool,
    MaxPool,
    MeanPool,
    Pooled,
    PowerSettings,
    SelfAttentionPool,
)
from perron.solver import PowerResult, SolverInfo, power_method, stationary

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "CentralityPool",
    "DynamicRoutingPool",
    "GraphCentralityPool",
    "IntraAttentionPool",
    "MaxPool",
    "MeanPool",
    "Pooled",
    "PowerResult",
    "PowerSettings",
    "SelfAttentionPool",
    "SolverInfo",
    "power_method",
    "stationary",
]
