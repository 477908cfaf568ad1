"""Metrics, and the evaluation of models and word graphs on held-out examples."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from perron.registry import Registry, load_plugins
from perron.text.sampling import Examples, batches_in_order

METRICS: Registry[type["Metric"]] = Registry("metric")


@dataclass(frozen=True)
class Evaluation:
    """The predictions of a model for some examples, in the order of the examples.

    Attributes:
        labels: True class of each example.
        log_probabilities: Logarithm of the probability of each class.
        weights: Weight of each example; None if all count the same.
    """

    labels: Int[np.ndarray, " n"]
    log_probabilities: Float[np.ndarray, "n c"]
    weights: Float[np.ndarray, " n"] | None = None

    @cached_property
    def predicted(self) -> Int[np.ndarray, " n"]:
        """The most probable class of each example."""
        return self.log_probabilities.argmax(1)

    @property
    def correct(self) -> np.ndarray:
        """Whether the prediction for each example is correct."""
        return self.predicted == self.labels

    @property
    def probabilities(self) -> Float[np.ndarray, "n c"]:
        """The probability of each class."""
        return np.exp(self.log_probabilities)

    @cached_property
    def confusion(self) -> Num[np.ndarray, "c c"]:
        """Number (or total weight) of examples by true class (row) and prediction."""
        classes = self.log_probabilities.shape[1]
        cells = self.labels * classes + self.predicted
        counts = np.bincount(cells, self.weights, minlength=classes**2)
        return counts.reshape(classes, classes)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The value of every metric, those of plugins included, by name."""
        load_plugins()
        return {name: float(kind().compute(self)) for name, kind in METRICS.items()}


class Metric(ABC):
    """A number computed from an `Evaluation`; defining a subclass registers it.

    Attributes:
        recipe_name: Name of the metric in files and settings.
        title: Name for people. Defaults to the recipe name with spaces.
        greater_is_better: Whether a larger value means a better model.
        in_percent: Whether values are fractions that are shown in percent.
    """

    recipe_name: ClassVar[str]
    title: ClassVar[str]
    greater_is_better: ClassVar[bool] = True
    in_percent: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "recipe_name" in vars(cls):
            if "title" not in vars(cls):
                cls.title = cls.recipe_name.replace("_", " ")
            METRICS.register(cls.recipe_name, cls)

    @abstractmethod
    def compute(self, evaluation: Evaluation) -> float:
        """Return the value; respect ``evaluation.weights`` where they are given."""

    def format(self, value: float) -> str:
        """Return a value as text."""
        return f"{100 * value:.2f} %" if self.in_percent else f"{value:.4f}"


class Accuracy(Metric):
    """The fraction of correct predictions."""

    recipe_name = "accuracy"

    def compute(self, evaluation: Evaluation) -> float:
        return float(np.average(evaluation.correct, weights=evaluation.weights))


class MacroF1(Metric):
    """The unweighted mean over classes of F1 = 2TP / (2TP + FP + FN).

    As in scikit-learn, classes that neither occur nor are predicted are left out.
    """

    recipe_name = "macro_f1"
    title = "macro-F1"

    def compute(self, evaluation: Evaluation) -> float:
        confusion = evaluation.confusion
        totals = confusion.sum(0) + confusion.sum(1)
        present = totals > 0
        return float((2 * confusion.diagonal()[present] / totals[present]).mean())


class LogLoss(Metric):
    """The mean negative logarithm of the probability of the true class."""

    recipe_name = "log_loss"
    title = "log-loss"
    greater_is_better = False
    in_percent = False

    def compute(self, evaluation: Evaluation) -> float:
        rows = np.arange(len(evaluation.labels))
        losses = -evaluation.log_probabilities[rows, evaluation.labels]
        return float(np.average(losses, weights=evaluation.weights))


def format_metrics(values: Mapping[str, float]) -> str:
    """Return values as text, such as ``accuracy 91.00 %, log-loss 0.2310``."""
    return ", ".join(
        f"{metric_title(name)} {format_metric(name, value)}"
        for name, value in values.items()
    )


def metric_title(name: str) -> str:
    """Return the name for people, also of a metric that is not registered here."""
    return METRICS[name].title if name in METRICS else name.replace("_", " ")


def format_metric(name: str, value: float) -> str:
    """Return a value as text, also of a metric that is not registered here."""
    return METRICS[name]().format(value) if name in METRICS else f"{value:.4g}"


EVALUATION_BATCH = 128


def evaluate(
    model: Any,
    examples: Examples,
    device: torch.device | str = "cpu",
    rank: int = 0,
    world: int = 1,
) -> Evaluation:
    """Classify all examples.

    Args:
        model: A classifier.
        examples: Labeled examples.
        device: Device of the model.
        rank: Number of this process, which evaluates every ``world``-th batch.
        world: Number of processes that evaluate together; each gets all predictions.
    """
    found = np.zeros((len(examples), len(model.config.labels)))
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for number, rows in enumerate(
            batches_in_order(examples.sizes, EVALUATION_BATCH)
        ):
            if number % world != rank:
                continue
            batch = examples.batch(rows).to(device)
            # In float64, so that two classes tie only if their logits are equal.
            logits = model(**batch.inputs).logits.cpu().double()
            found[rows] = logits.log_softmax(-1).numpy()
    model.train(was_training)
    if world > 1:
        # Every example was classified by one process and is zero in the others.
        found = _summed(found, device)
    return Evaluation(examples.labels, found, examples.weights)


def _summed(values: np.ndarray, device: torch.device | str) -> np.ndarray:
    tensor = torch.from_numpy(values).to(device)
    torch.distributed.all_reduce(tensor)
    return tensor.cpu().numpy()


MOST_TEXTS = 1000  # looked at: eigenvalues take time, and means need no more
LONGEST = 500  # words: a longer text's graph takes too much room and time
_BATCH = 64
# What each of a model's poolings pools.
_LEVELS = {
    "text": ("words",),
    "document": ("words", "sentences"),
    "pair": ("words of the first text", "words of the second text"),
}


@dataclass(frozen=True)
class GraphMeasure:
    """Two numbers about the graphs of one of a model's poolings, means over texts.

    Both are zero if every word has the same opinion, A_ij = g(h_i), which makes
    centrality the same as self-attention.

    Attributes:
        level: what is pooled.
        texts: that were looked at; of the words of documents, sentences. None has less
            than two words.
        context_dependence: how much an edge into a word depends on where it comes from:
            the standard deviation of A_ij over the sources j as a share of their mean,
            averaged over the words i, each with the weight of that mean.
        second_eigenvalue: the second largest |λ| of A. The largest is 1.
    """

    level: str
    texts: int
    context_dependence: float
    second_eigenvalue: float


def measure_graphs(
    model: Any,
    examples: Examples,
    device: torch.device | str = "cpu",
    most: int = MOST_TEXTS,
) -> list[GraphMeasure]:
    """Measure the word graphs of some examples; nothing for models without graphs.

    Args:
        model: a classifier.
        examples: some, evenly spread, are looked at; none of more than `LONGEST` words,
            but for documents, whose graphs are those of sentences.
        device: of the model.
        most: how many at the most.
    """
    found: dict[int, list[np.ndarray]] = {}
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for batch in _spread(examples, most):
            classified = model(**batch.to(device).inputs, need_edges=True)
            for level, pooled in enumerate(classified.pooled):
                if pooled.head_edges is not None:
                    found.setdefault(level, []).append(_measured(pooled.head_edges))
    model.train(was_training)
    names = _LEVELS[model.kind]
    return [
        GraphMeasure(names[level], len(values), *values.mean(0).tolist())
        for level, rows in sorted(found.items())
        if len(values := np.concatenate(rows))
    ]


def _spread(examples: Examples, most: int) -> Iterator[Any]:
    short = np.flatnonzero(examples.is_document | (examples.sizes <= LONGEST))
    chosen = short[:: max(1, -(-len(short) // most))]
    for rows in batches_in_order(examples.sizes[chosen], _BATCH):
        yield examples.batch(chosen[rows])


def _measured(edges: Float[Tensor, "b h n n"]) -> Float[np.ndarray, "texts 2"]:
    """Return both numbers, means over the heads, for each text of two words or more."""
    graphs = edges.cpu().double()
    counts = (graphs[:, 0].sum(-2) > 0.5).sum(-1)  # columns of words sum to one
    graphs, counts = graphs[counts > 1], counts[counts > 1]
    if not len(graphs):
        return np.empty((0, 2))
    # Over j; entries of padding are zero, and so add nothing to the sums.
    number = counts[:, None, None]
    mean = graphs.sum(-1) / number
    square = (graphs.square().sum(-1) / number - mean.square()).clamp(min=0)
    dependence = square.sqrt().sum(-1)  # Σ_i mean_i (deviation_i / mean_i)
    # Padding adds eigenvalues that are zero.
    sizes = torch.linalg.eigvals(graphs).abs().sort(-1, descending=True).values
    return torch.stack([dependence.mean(1), sizes[..., 1].mean(1)], -1).numpy()
