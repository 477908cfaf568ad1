"""Metrics: how well predictions agree with the true classes.

Defining a subclass of `Metric` is all it takes to add one. Every evaluation computes
all metrics; metrics.jsonl, result.json, records of studies, tables, progress bars and
model cards carry them by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, Num

from perron.registry import Registry, load_plugins

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
