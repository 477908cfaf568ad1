"""Compile every aggregator, and compare with eager mode for several shapes."""

import torch

from perron import (
    CentralityPool,
    DynamicRoutingPool,
    FirstPool,
    GraphCentralityPool,
    IntraAttentionPool,
    MaxPool,
    MeanPool,
    SelfAttentionPool,
)

POOLS = [
    MaxPool(8),
    MeanPool(8),
    FirstPool(8),
    SelfAttentionPool(8, num_queries=2),
    IntraAttentionPool(8),
    DynamicRoutingPool(8),
    DynamicRoutingPool(8, reverse=True),
    CentralityPool(8, num_heads=2),
    CentralityPool(8, connectivity="bilinear", norm="l2"),
    CentralityPool(8, connectivity="query"),
    CentralityPool(8, num_heads=2, connectivity="low_rank", rank=5, norm="l2"),
]

for pool in POOLS:
    torch.compiler.reset()  # aggregators share code, and torch limits recompilations
    compiled = torch.compile(pool, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch, n in [(3, 6), (5, 9)]:
        states, mask = torch.randn(batch, n, 8), torch.rand(batch, n) < 0.7
        torch.testing.assert_close(
            compiled(states, mask).vector, pool(states, mask).vector
        )
    integer_mask = mask.long()  # as returned by tokenizers
    torch.testing.assert_close(
        compiled(states, integer_mask).vector, pool(states, mask).vector
    )
    print(type(pool).__name__)

torch.compiler.reset()
pool = GraphCentralityPool(8, dim=-1)
compiled = torch.compile(pool, fullgraph=True, dynamic=True, backend="aot_eager")
for batch, n in [(3, 6), (5, 9)]:
    states, mask = torch.randn(batch, n, 8), torch.rand(batch, n) < 0.7
    graph = torch.rand(batch, n, n)
    torch.testing.assert_close(
        compiled(states, graph, mask).vector, pool(states, graph, mask).vector
    )
print(type(pool).__name__)
