"""What does centrality cost where it is used, in a step of training?

One optimiser step of a BiLSTM (300 + 300) on word vectors of width 300 with each
aggregator: 128 sentences of 20 words, and 64 documents of 10 sentences of 20 words,
where a second BiLSTM and a second aggregator follow on the sentences. float32, medians
of interleaved repeats, also as a ratio to self-attention. Beside ours: the paper's way,
with the scores of all pairs broadcast and the power method at its settings (ε = 1e-10,
up to 200 steps), unrolled and by its reverse iteration.

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
    PowerSettings,
    SelfAttentionPool,
)
from perron.pooling.connectivity import MLPConnectivity
from perron.pooling.words import Words
from timing import Report, interleaved_medians

WIDTH, CLASSES = 300, 5
SHAPES = {"128 sentences x 20 words": (128, 20), "64 x 10 x 20 words": (64, 10, 20)}


class BroadcastConnectivity(MLPConnectivity):
    """The paper's network as one would write it: the hidden layers of all pairs."""

    def forward(self, words: Words) -> Tensor:
        """Return the scores (B, 1, N, N) of texts without padding."""
        states = words.padded(words.states)
        a, b = self.target(states), self.source(states)
        hidden = torch.tanh(a.unsqueeze(2) + b.unsqueeze(1))
        return (hidden @ self.score[0]).unsqueeze(1)


def as_in_the_paper(dim: int, gradient: str) -> Aggregator:
    """Return centrality pooling at the paper's settings."""
    settings = PowerSettings(tol=1e-10, max_steps=200, gradient=gradient)
    pool = CentralityPool(dim, solver=settings)
    pool.connectivity = BroadcastConnectivity(dim, pool.hidden, 1, "tanh")
    return pool


POOLS: dict[str, Callable[[int], Aggregator]] = {
    "max": MaxPool,
    "mean": MeanPool,
    "self-attention": SelfAttentionPool,
    "routing": DynamicRoutingPool,
    "centrality": CentralityPool,
    "centrality, paper, unrolled": partial(as_in_the_paper, gradient="unrolled"),
    "centrality, paper, reverse": partial(as_in_the_paper, gradient="reverse"),
}


class Level(nn.Module):
    """A BiLSTM and an aggregator: vectors of parts to the vector of the whole."""

    def __init__(self, width: int, make: Callable[[int], Aggregator]) -> None:
        super().__init__()
        self.encode = nn.LSTM(width, WIDTH, batch_first=True, bidirectional=True)
        self.pool = make(2 * WIDTH)

    def forward(self, parts: Tensor) -> Tensor:
        """Return (B, D') of (B, N, width)."""
        return self.pool(self.encode(parts)[0]).vector


class Classifier(nn.Module):
    """One level for sentences, two for documents."""

    def __init__(self, make: Callable[[int], Aggregator], levels: int) -> None:
        super().__init__()
        self.words = Level(WIDTH, make)
        width = self.words.pool.out_dim
        self.sentences = Level(width, make) if levels == 2 else None
        last = self.sentences or self.words
        self.head = nn.Linear(last.pool.out_dim, CLASSES)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the logits of (B, N, width) or (B, S, N, width)."""
        if self.sentences is None:
            return self.head(self.words(vectors))
        texts = self.words(vectors.flatten(0, 1)).unflatten(0, vectors.shape[:2])
        return self.head(self.sentences(texts))


def make_step(
    make: Callable[[int], Aggregator], vectors: Tensor, labels: Tensor
) -> Callable[[], None]:
    """Return a function that takes one step of Adam."""
    torch.manual_seed(0)
    model = Classifier(make, levels=vectors.ndim - 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(vectors), labels).backward()
        optimiser.step()

    return step


def measure(name: str, shape: tuple[int, ...], budget: float) -> list[dict]:
    """Return a row for each aggregator."""
    torch.manual_seed(0)
    vectors = torch.randn(*shape, WIDTH)
    labels = torch.randint(CLASSES, shape[:1])
    ways = {way: make_step(make, vectors, labels) for way, make in POOLS.items()}
    seconds = interleaved_medians(ways, repeats=15, budget=budget)
    base = seconds["self-attention"]
    return [
        {"way": way, "shape": name, "milliseconds": 1000 * t, "ratio": t / base}
        for way, t in seconds.items()
    ]


def conclusions(rows: list[dict]) -> list[str]:
    """Return what the question comes down to."""

    def ratios(way: str) -> str:
        return ", ".join(f"{r['ratio']:.2f}" for r in rows if r["way"] == way)

    return [
        f"a step with centrality takes {ratios('centrality')} of one with "
        "self-attention (sentences, documents)",
        f"the paper's way takes {ratios('centrality, paper, unrolled')} unrolled, "
        f"{ratios('centrality, paper, reverse')} by its reverse iteration",
    ]


def main() -> None:
    """Measure and print."""
    report = Report(__doc__, budget=90)
    for name, shape in list(SHAPES.items())[: 1 if report.quick else None]:
        rows = measure(name, shape, report.budget)
        report.add(name, rows, {"way": "", "milliseconds": ".0f", "ratio": ".2f"})
    report.finish(conclusions(report.rows))


if __name__ == "__main__":
    main()
