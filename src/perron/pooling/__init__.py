"""Aggregators: states and a mask in, one vector a text out."""

from perron.pooling.base import Aggregator, Pooled
from perron.pooling.centrality import CentralityPool, PowerSettings
from perron.pooling.dynamic_routing import DynamicRoutingPool
from perron.pooling.first import FirstPool
from perron.pooling.graph import GraphCentralityPool
from perron.pooling.intra_attention import IntraAttentionPool
from perron.pooling.max import MaxPool
from perron.pooling.mean import MeanPool
from perron.pooling.self_attention import SelfAttentionPool

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
