"""What does centrality cost in a training step?

This benchmark times one optimizer step of a BiLSTM (300 units per direction) on word
vectors of width 300, with each aggregator. The inputs are 128 sentences of 20 words,
and 64 documents of 10 sentences of 20 words; for documents, a second BiLSTM and a
second aggregator process the sentence vectors. Times are medians of interleaved repeats
in float32, also shown relative to self-attention. The paper's method is measured as
well: it broadcasts the scores of all pairs and runs power iteration at the paper's
settings (ε = 1e-10, up to 200 iterations), unrolled or with the reverse iteration.

    python benchmarks/training_step.py [--json FILE] [--threads 2] [--budget 90]
                                       [--quick]
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perron import (
    Aggregator,
    CentralityPool,
    DynamicRoutingPool,
    MaxPool,
    MeanPool,
    PowerIteration,
    SelfAttentionPool,
)
from perron.pooling.connectivity import MLPConnectivity
from perron.pooling.tokens import TokenBatch
from timing import Report, interleaved_medians

WIDTH, CLASSES = 300, 5
SHAPES = {"128 sentences x 20 words": (128, 20), "64 x 10 x 20 words": (64, 10, 20)}


class BroadcastConnectivity(MLPConnectivity):
    """The paper's network, with the hidden layers of all pairs materialized."""

    def forward(self, tokens: TokenBatch) -> Tensor:
        """Return the scores (B, 1, N, N) of texts without padding."""
        states = tokens.to_padded(tokens.states)
        a, b = self.target(states), self.source(states)
        hidden = torch.tanh(a.unsqueeze(2) + b.unsqueeze(1))
        return (hidden @ self.score[0]).unsqueeze(1)


def make_paper_pool(embed_dim: int, gradient: str) -> Aggregator:
    """Return centrality pooling at the paper's settings."""
    solver = PowerIteration(tol=1e-10, max_iter=200, gradient=gradient)
    pool = CentralityPool(embed_dim, solver=solver)
    pool.connectivity = BroadcastConnectivity(embed_dim, pool.hidden_dim, 1, "tanh")
    return pool


POOLS: dict[str, Callable[[int], Aggregator]] = {
    "max": MaxPool,
    "mean": MeanPool,
    "self-attention": SelfAttentionPool,
    "dynamic routing": DynamicRoutingPool,
    "centrality": CentralityPool,
    "centrality, paper, unrolled": partial(make_paper_pool, gradient="unrolled"),
    "centrality, paper, reverse": partial(make_paper_pool, gradient="reverse"),
}


class Level(nn.Module):
    """A BiLSTM and an aggregator, from a sequence of vectors to one vector."""

    def __init__(self, width: int, make: Callable[[int], Aggregator]) -> None:
        super().__init__()
        self.encode = nn.LSTM(width, WIDTH, batch_first=True, bidirectional=True)
        self.pool = make(2 * WIDTH)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map (B, N, width) to (B, D')."""
        return self.pool(self.encode(vectors)[0]).vector


class Classifier(nn.Module):
    """A classifier with one level for sentences and two for documents."""

    def __init__(self, make: Callable[[int], Aggregator], levels: int) -> None:
        super().__init__()
        self.words = Level(WIDTH, make)
        width = self.words.pool.out_dim
        self.sentences = Level(width, make) if levels == 2 else None
        last = self.sentences or self.words
        self.head = nn.Linear(last.pool.out_dim, CLASSES)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the logits for (B, N, width) or (B, S, N, width) inputs."""
        if self.sentences is None:
            return self.head(self.words(vectors))
        texts = self.words(vectors.flatten(0, 1)).unflatten(0, vectors.shape[:2])
        return self.head(self.sentences(texts))


def make_step(
    make: Callable[[int], Aggregator], vectors: Tensor, labels: Tensor
) -> Callable[[], None]:
    """Return a function that runs one Adam step."""
    torch.manual_seed(0)
    model = Classifier(make, levels=vectors.ndim - 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(vectors), labels).backward()
        optimizer.step()

    return step


def measure(title: str, shape: tuple[int, ...], budget: float) -> list[dict]:
    """Return a row for each aggregator."""
    torch.manual_seed(0)
    vectors = torch.randn(*shape, WIDTH)
    labels = torch.randint(CLASSES, shape[:1])
    calls = {name: make_step(make, vectors, labels) for name, make in POOLS.items()}
    seconds = interleaved_medians(calls, repeats=15, budget=budget)
    base = seconds["self-attention"]
    return [
        {"method": name, "shape": title, "milliseconds": 1000 * t, "ratio": t / base}
        for name, t in seconds.items()
    ]


def conclusions(rows: list[dict]) -> list[str]:
    """Summarize the cost of centrality relative to self-attention."""

    def ratios(method: str) -> str:
        return " and ".join(f"{r['ratio']:.2f}" for r in rows if r["method"] == method)

    return [
        f"a step with centrality takes {ratios('centrality')} times as long as one "
        "with self-attention (sentences, documents)",
        f"the paper's method takes {ratios('centrality, paper, unrolled')} times as "
        f"long unrolled, and {ratios('centrality, paper, reverse')} times with the "
        "reverse iteration",
    ]


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=90)
    for title, shape in list(SHAPES.items())[: 1 if report.quick else None]:
        rows = measure(title, shape, report.budget)
        report.add(title, rows, {"method": "", "milliseconds": ".0f", "ratio": ".2f"})
    report.finish(conclusions(report.rows))


if __name__ == "__main__":
    main()
