"""What does each aggregator cost, alone?

Forward and backward from states of width 600 to one vector a text, float32, with texts
of one length and with skewed lengths (as skewed as SST's: the mean is 0.37 of the
longest). Times are ratios to `SelfAttentionPool`, medians of interleaved repeats.

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
    "routing": DynamicRoutingPool,
    "routing, reverse": partial(DynamicRoutingPool, reverse=True),
    "centrality": CentralityPool,
    "centrality, bilinear": partial(CentralityPool, connectivity="bilinear"),
    "centrality, low rank": partial(CentralityPool, connectivity="low_rank"),
}


def skewed_mask(texts: int, words: int) -> Tensor:
    """Return a mask of lengths between 1 and ``words``, most of them short."""
    torch.manual_seed(0)
    shape = 4.3
    drawn = torch.distributions.Gamma(shape, shape).sample((texts,))
    lengths = (0.37 * words * drawn).round().clamp(1, words)
    lengths[0] = words
    return torch.arange(words) < lengths.unsqueeze(1)


def step(pool: Aggregator, states: Tensor, mask: Tensor, grad: Tensor) -> None:
    """Go forward and backward once."""
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
    ways = {
        name: partial(step, make(DIM), states, mask, grad)
        for name, make in POOLS.items()
    }
    seconds = interleaved_medians(ways, repeats=25, budget=budget)
    base = seconds["self-attention"]
    lengths = "skewed" if skewed else "even"
    return [
        {
            "way": name,
            "texts": texts,
            "words": words,
            "lengths": lengths,
            "milliseconds": 1000 * taken,
            "ratio": taken / base,
        }
        for name, taken in seconds.items()
    ]


def conclusions(rows: list[dict]) -> list[str]:
    """Return what the question comes down to."""
    most = max(r["ratio"] for r in rows if r["way"] == "centrality")
    return [f"`CentralityPool` takes at most {most:.2f} times `SelfAttentionPool`"]


def main() -> None:
    """Measure and print."""
    report = Report(__doc__, budget=20)
    for texts, words in SHAPES[:1] if report.quick else SHAPES:
        for skewed in (False, True):
            rows = measure(texts, words, skewed, report.budget)
            title = f"{texts} x {words} x {DIM}, {rows[0]['lengths']} lengths"
            report.add(title, rows, {"way": "", "milliseconds": ".1f", "ratio": ".2f"})
    report.finish(conclusions(report.rows))


if __name__ == "__main__":
    main()
