"""What does each aggregator cost on its own?

This benchmark runs a forward and backward pass from states of width 600 to one vector
per text, in float32. The texts have either equal lengths or skewed lengths (as skewed
as SST's, where the mean is 0.37 of the longest). Times are medians of interleaved
repeats, also shown relative to `SelfAttentionPool`.

    python benchmarks/pooling.py [--json FILE] [--threads 2] [--budget 20] [--quick]
"""

from functools import partial

import torch
from torch import Tensor

from perron import (
    Aggregator,
    CentralityPool,
    DynamicRoutingPool,
    IntraAttentionPool,
    MaxPool,
    MeanPool,
    SelfAttentionPool,
)
from timing import Report, interleaved_medians

DIM = 600
SHAPES = [(640, 20), (32, 200)]

POOLS = {
    "max": MaxPool,
    "mean": MeanPool,
    "self-attention": SelfAttentionPool,
    "intra-attention": IntraAttentionPool,
    "dynamic routing": DynamicRoutingPool,
    "dynamic routing, reverse": partial(DynamicRoutingPool, reverse=True),
    "centrality": CentralityPool,
    "centrality, bilinear": partial(CentralityPool, connectivity="bilinear"),
    "centrality, low rank": partial(CentralityPool, connectivity="low_rank"),
}


def skewed_mask(texts: int, words: int) -> Tensor:
    """Return a mask of texts with 1 to ``words`` words, most of them short."""
    torch.manual_seed(0)
    shape = 4.3
    samples = torch.distributions.Gamma(shape, shape).sample((texts,))
    lengths = (0.37 * words * samples).round().clamp(1, words)
    lengths[0] = words
    return torch.arange(words) < lengths.unsqueeze(1)


def step(pool: Aggregator, states: Tensor, mask: Tensor, grad: Tensor) -> None:
    """Run forward and backward once."""
    vector = pool(states, mask).vector
    torch.autograd.backward(vector, grad[:, : vector.shape[1]])
    states.grad = None
    pool.zero_grad()


def measure(texts: int, words: int, skewed: bool, budget: float) -> list[dict]:
    """Return a row for each aggregator."""
    torch.manual_seed(0)
    mask = torch.ones(texts, words, dtype=torch.bool)
    mask = skewed_mask(texts, words) if skewed else mask
    states = torch.randn(texts, words, DIM).mul_(0.3).requires_grad_()
    grad = torch.randn(texts, DIM)
    calls = {
        name: partial(step, make(DIM), states, mask, grad)
        for name, make in POOLS.items()
    }
    seconds = interleaved_medians(calls, repeats=25, budget=budget)
    base = seconds["self-attention"]
    lengths = "skewed" if skewed else "equal"
    return [
        {
            "method": name,
            "texts": texts,
            "words": words,
            "lengths": lengths,
            "milliseconds": 1000 * time,
            "ratio": time / base,
        }
        for name, time in seconds.items()
    ]


def conclusions(rows: list[dict]) -> list[str]:
    """Summarize the cost of `CentralityPool`."""
    ratio = max(r["ratio"] for r in rows if r["method"] == "centrality")
    return [
        f"`CentralityPool` takes at most {ratio:.2f} times as long as "
        "`SelfAttentionPool`"
    ]


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=20)
    for texts, words in SHAPES[:1] if report.quick else SHAPES:
        for skewed in (False, True):
            rows = measure(texts, words, skewed, report.budget)
            title = f"{texts} x {words} x {DIM}, {rows[0]['lengths']} lengths"
            columns = {"method": "", "milliseconds": ".1f", "ratio": ".2f"}
            report.add(title, rows, columns)
    report.finish(conclusions(report.rows))


if __name__ == "__main__":
    main()
