"""A metric of one's own: accuracy that every class has the same share in."""

import numpy as np

from perron.training.metrics import Evaluation, Metric


class BalancedAccuracy(Metric):
    """The mean over classes of the share of their examples that is found."""

    recipe_name = "balanced_accuracy"

    def compute(self, evaluation: Evaluation) -> float:
        confusion = evaluation.confusion
        totals = confusion.sum(1)
        present = totals > 0
        return float(np.mean(confusion.diagonal()[present] / totals[present]))
