"""Custom metric: balanced accuracy."""

import numpy as np

from perron.training.metrics import Evaluation, Metric


class BalancedAccuracy(Metric):
    """Mean recall of the classes."""

    recipe_name = "balanced_accuracy"

    def compute(self, evaluation: Evaluation) -> float:
        confusion = evaluation.confusion
        totals = confusion.sum(1)
        present = totals > 0
        return float(np.mean(confusion.diagonal()[present] / totals[present]))
