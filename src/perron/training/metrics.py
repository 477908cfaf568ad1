"""Metrics, and evaluation of models and their word graphs."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from perron.kernels import wait_for_compiled
from perron.registry import Registry, load_plugins
from perron.text.sampling import Examples, evaluation_batches

METRICS: Registry[type["Metric"]] = Registry("metric")


@dataclass(frozen=True)
class Evaluation:
    """Predictions of a model, in the order of the examples.

    Attributes:
        labels: True class of each example.
        log_probabilities: Log-probability of each class, per example.
        weights: Weight of each example, or None for equal weights.
    """

    labels: Int[np.ndarray, " n"]
    log_probabilities: Float[np.ndarray, "n c"]
    weights: Float[np.ndarray, " n"] | None = None

    @cached_property
    def predicted(self) -> Int[np.ndarray, " n"]:
        """Most probable class of each example."""
        return self.log_probabilities.argmax(1)

    @property
    def correct(self) -> np.ndarray:
        """Whether the prediction for each example is correct."""
        return self.predicted == self.labels

    @property
    def probabilities(self) -> Float[np.ndarray, "n c"]:
        """Probability of each class, per example."""
        return np.exp(self.log_probabilities)

    @cached_property
    def confusion(self) -> Num[np.ndarray, "c c"]:
        """Number (or total weight) of examples per true (row) and predicted class."""
        classes = self.log_probabilities.shape[1]
        cells = self.labels * classes + self.predicted
        counts = np.bincount(cells, self.weights, minlength=classes**2)
        return counts.reshape(classes, classes)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Value of every registered metric, including those of plugins, by name."""
        load_plugins()
        return {name: float(kind().compute(self)) for name, kind in METRICS.items()}


class Metric(ABC):
    """Base class of metrics; defining a subclass with a `recipe_name` registers it.

    Attributes:
        recipe_name: Name of the metric in files and settings.
        title: Display name. Defaults to the recipe name with spaces.
        greater_is_better: Whether a larger value means a better model.
        in_percent: Whether values are fractions to be displayed in percent.
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
        """Return the value, weighted by ``evaluation.weights`` unless that is None."""

    def format(self, value: float) -> str:
        """Format a value for display."""
        return f"{100 * value:.2f} %" if self.in_percent else f"{value:.4f}"


class Accuracy(Metric):
    """Fraction of correct predictions."""

    recipe_name = "accuracy"

    def compute(self, evaluation: Evaluation) -> float:
        return float(np.average(evaluation.correct, weights=evaluation.weights))


class MacroF1(Metric):
    """Unweighted mean over classes of F1 = 2TP / (2TP + FP + FN).

    As in scikit-learn, classes that neither occur nor are predicted are ignored.
    """

    recipe_name = "macro_f1"
    title = "macro-F1"

    def compute(self, evaluation: Evaluation) -> float:
        confusion = evaluation.confusion
        totals = confusion.sum(0) + confusion.sum(1)
        present = totals > 0
        return float((2 * confusion.diagonal()[present] / totals[present]).mean())


class LogLoss(Metric):
    """Mean negative log-probability of the true class."""

    recipe_name = "log_loss"
    title = "log-loss"
    greater_is_better = False
    in_percent = False

    def compute(self, evaluation: Evaluation) -> float:
        rows = np.arange(len(evaluation.labels))
        losses = -evaluation.log_probabilities[rows, evaluation.labels]
        return float(np.average(losses, weights=evaluation.weights))


_CALIBRATION_BINS = 15  # as in Guo et al. (2017)


class CalibrationError(Metric):
    """Expected calibration error (ECE; Guo et al., 2017), with 15 bins of equal width.

    Texts are grouped by the probability of their predicted class into the bins
    [0, 1/15), [1/15, 2/15), … For each bin, |accuracy - mean probability| is weighted
    by the fraction of texts in the bin.
    """

    recipe_name = "calibration_error"
    title = "ECE"
    greater_is_better = False

    def compute(self, evaluation: Evaluation) -> float:
        confidence = evaluation.probabilities.max(1)
        bins = (_CALIBRATION_BINS * confidence).astype(int)
        bins = bins.clip(max=_CALIBRATION_BINS - 1)  # a probability of 1
        gaps = evaluation.correct - confidence
        weights = (
            np.ones(len(gaps)) if evaluation.weights is None else evaluation.weights
        )
        return float(np.abs(np.bincount(bins, weights * gaps)).sum() / weights.sum())


_TEMPERATURE_STD = 0.5  # of the prior of log T
_MAX_TEMPERATURE = 20.0


def fit_temperature(evaluation: Evaluation) -> float:
    """Return the temperature T for which softmax(logits / T) has the least log-loss.

    T > 1 means that the model is overconfident. T changes probabilities, but never the
    most probable class (Guo et al., 2017). A log-normal prior around one, which has
    little effect with a hundred texts or more, keeps T finite if there are few texts
    and the model classifies all of them correctly.

    Args:
        evaluation: Predictions for data that the model was not trained on.
    """
    from scipy.optimize import minimize_scalar

    rows = np.arange(len(evaluation.labels))

    def loss(log_temperature: float) -> float:
        logits = evaluation.log_probabilities / np.exp(log_temperature)
        losses = np.logaddexp.reduce(logits, 1) - logits[rows, evaluation.labels]
        if evaluation.weights is not None:
            losses = losses * evaluation.weights
        return float(losses.sum() + (log_temperature / _TEMPERATURE_STD) ** 2 / 2)

    limit = float(np.log(_MAX_TEMPERATURE))
    options = {"xatol": 1e-6}
    found = minimize_scalar(
        loss, bounds=(-limit, limit), method="bounded", options=options
    )
    return float(np.exp(found.x))


def format_metrics(values: Mapping[str, float]) -> str:
    """Format metrics for display, such as ``accuracy 91.00 %, log-loss 0.2310``."""
    return ", ".join(
        f"{metric_title(name)} {format_metric(name, value)}"
        for name, value in values.items()
    )


def metric_title(name: str) -> str:
    """Return the display name of a metric, which need not be registered."""
    return METRICS[name].title if name in METRICS else name.replace("_", " ")


def format_metric(name: str, value: float) -> str:
    """Format a value of a metric, which need not be registered."""
    return METRICS[name]().format(value) if name in METRICS else f"{value:.4g}"


EVALUATION_BATCH_SIZE = 128


def evaluate(
    model: Any,
    examples: Examples,
    device: torch.device | str = "cpu",
    rank: int = 0,
    world: int = 1,
) -> Evaluation:
    """Evaluate a model on labeled examples.

    With several processes, each one evaluates every ``world``-th batch, and all of them
    return all predictions.

    Args:
        model: Classifier.
        examples: Labeled examples.
        device: Device of the model.
        rank: Rank of this process.
        world: Number of processes.
    """
    wait_for_compiled()  # so that results do not depend on timing
    log_probabilities = np.zeros((len(examples), len(model.config.labels)))
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for number, rows in enumerate(
            evaluation_batches(examples.sizes, EVALUATION_BATCH_SIZE)
        ):
            if number % world != rank:
                continue
            batch = examples.batch(rows).to(device)
            # In float64, so that two classes tie only if their logits are equal.
            logits = model(**batch.inputs).logits.cpu().double()
            log_probabilities[rows] = logits.log_softmax(-1).numpy()
    model.train(was_training)
    if world > 1:
        # Rows that were evaluated by another process are zero here.
        log_probabilities = _all_reduce(log_probabilities, device)
    return Evaluation(examples.labels, log_probabilities, examples.weights)


def _all_reduce(values: np.ndarray, device: torch.device | str) -> np.ndarray:
    tensor = torch.from_numpy(values).to(device)
    torch.distributed.all_reduce(tensor)
    return tensor.cpu().numpy()


MAX_TEXTS = 1000  # enough for a mean; eigenvalues are expensive
MAX_WORDS = 500  # graphs of longer texts need too much memory and time
_GRAPH_BATCH_SIZE = 64
# The inputs of each pooling layer of a model.
_LEVELS = {
    "text": ("words",),
    "document": ("words", "sentences"),
    "pair": ("words of the first text", "words of the second text"),
}


@dataclass(frozen=True)
class GraphMeasure:
    """Statistics of the graphs of one pooling layer, averaged over texts.

    Both statistics are zero if all words agree on the weight of every word, that is,
    A_ij = g(h_i). Centrality is then equivalent to self-attention.

    Attributes:
        level: What the layer pools, such as words or sentences.
        texts: Number of graphs, one per text with at least two words. For the words of
            documents, one per sentence.
        context_dependence: How much an edge into a word depends on its source word: the
            standard deviation of A_ij over the sources j divided by their mean,
            averaged over the words i, weighted by that mean.
        second_eigenvalue: Second largest |λ| of A. The largest is 1.
    """

    level: str
    texts: int
    context_dependence: float
    second_eigenvalue: float


def measure_graphs(
    model: Any,
    examples: Examples,
    device: torch.device | str = "cpu",
    max_texts: int = MAX_TEXTS,
) -> list[GraphMeasure]:
    """Measure the word graphs of a model; return an empty list if it has none.

    Uses an evenly spaced sample of the examples. Texts of more than `MAX_WORDS` words
    are skipped, except documents, whose graphs are per sentence.

    Args:
        model: Classifier.
        examples: Examples to sample from.
        device: Device of the model.
        max_texts: Maximum number of examples to use.
    """
    wait_for_compiled()
    statistics: dict[int, list[np.ndarray]] = {}
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for batch in _sample_batches(examples, max_texts):
            output = model(**batch.to(device).inputs, need_edges=True)
            for level, pooled in enumerate(output.pooled):
                if pooled.head_edges is not None:
                    values = _graph_statistics(pooled.head_edges)
                    statistics.setdefault(level, []).append(values)
    model.train(was_training)
    names = _LEVELS[model.kind]
    return [
        GraphMeasure(names[level], len(values), *values.mean(0).tolist())
        for level, rows in sorted(statistics.items())
        if len(values := np.concatenate(rows))
    ]


def _sample_batches(examples: Examples, max_texts: int) -> Iterator[Any]:
    short = np.flatnonzero(examples.is_document | (examples.sizes <= MAX_WORDS))
    sample = short[:: max(1, -(-len(short) // max_texts))]
    for rows in evaluation_batches(examples.sizes[sample], _GRAPH_BATCH_SIZE):
        yield examples.batch(sample[rows])


def _graph_statistics(edges: Float[Tensor, "b h n n"]) -> Float[np.ndarray, "texts 2"]:
    """Return the statistics of each text with at least two words, averaged over heads.

    The columns are context dependence and second eigenvalue.
    """
    graphs = edges.cpu().double()
    counts = (graphs[:, 0].sum(-2) > 0.5).sum(-1)  # columns of words sum to one
    graphs, counts = graphs[counts > 1], counts[counts > 1]
    if not len(graphs):
        return np.empty((0, 2))
    # Sums over j; padding is zero and does not contribute.
    lengths = counts[:, None, None]
    mean = graphs.sum(-1) / lengths
    variance = (graphs.square().sum(-1) / lengths - mean.square()).clamp(min=0)
    dependence = variance.sqrt().sum(-1)  # Σ_i mean_i (std_i / mean_i)
    # Padding only adds zero eigenvalues.
    eigenvalues = torch.linalg.eigvals(graphs).abs().sort(-1, descending=True).values
    return torch.stack([dependence.mean(1), eigenvalues[..., 1].mean(1)], -1).numpy()
