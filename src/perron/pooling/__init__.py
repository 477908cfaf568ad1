"""Aggregators: states and a mask in, one vector a text out."""

from perron.pooling.base import Aggregator, Pooled
from perron.pooling.basic import (
    FirstPool,
    IntraAttentionPool,
    MaxPool,
    MeanPool,
    SelfAttentionPool,
)
from perron.pooling.centrality import CentralityPool, PowerSettings
from perron.pooling.graph import GraphCentralityPool
from perron.pooling.routing import DynamicRoutingPool

__all__ = [
    "Aggregator",
    "CentralityPool",
    "DynamicRoutingPool",
    "FirstPool",
    "GraphCentralityPool",
    "IntraAttentionPool",
    "MaxPool",
    "MeanPool",
    "Pooled",
    "PowerSettings",
    "SelfAttentionPool",
]
