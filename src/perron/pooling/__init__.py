"""Aggregators: states and a mask in, one vector a text out."""

from perron.pooling.base import (
    AGGREGATORS,
    Aggregator,
    Pooled,
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
from perron.pooling.centrality import CentralityPool, PowerSettings
from perron.pooling.connectivity import CONNECTIVITIES, Connectivity
from perron.pooling.graph import GraphCentralityPool
from perron.pooling.words import Words

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
    "Pooled",
    "PowerSettings",
    "SelfAttentionPool",
    "Words",
    "project",
    "weighted_sum",
]
