"""Aggregators, which pool the token states of each text into one vector."""

from perron.pooling.base import (
    AGGREGATORS,
    Aggregator,
    PoolingOutput,
    project,
    weighted_sum,
)
from perron.pooling.basic import (
    DynamicRoutingPool,
    FirstPool,
    IntraAttentionPool,
    MaxPool,
    MeanPool,
    SelfAttentionPool,
)
from perron.pooling.centrality import CentralityPool, PowerIteration
from perron.pooling.connectivity import CONNECTIVITIES, Connectivity
from perron.pooling.graph import GraphCentralityPool
from perron.pooling.tokens import TokenBatch

__all__ = [
    "AGGREGATORS",
    "CONNECTIVITIES",
    "Aggregator",
    "CentralityPool",
    "Connectivity",
    "DynamicRoutingPool",
    "FirstPool",
    "GraphCentralityPool",
    "IntraAttentionPool",
    "MaxPool",
    "MeanPool",
    "PoolingOutput",
    "PowerIteration",
    "SelfAttentionPool",
    "TokenBatch",
    "project",
    "weighted_sum",
]
