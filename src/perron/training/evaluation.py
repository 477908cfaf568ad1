"""How good a model is on examples that it does not learn from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from perron.data.batches import Examples, batches_in_order

EVALUATION_BATCH = 128


@dataclass(frozen=True)
class Evaluation:
    """What a model said about each example, in their order.

    Attributes:
        predicted: class of each example.
        right: whether that was so.
        loss: mean cross entropy.
    """

    predicted: np.ndarray
    right: np.ndarray
    loss: float

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return float(self.right.mean())


def evaluate(
    model: Any,
    examples: Examples,
    device: torch.device | str = "cpu",
    rank: int = 0,
    world: int = 1,
) -> Evaluation:
    """Classify all examples; each of several processes does its part of the batches."""
    predicted = np.zeros(len(examples), np.int64)
    losses = np.zeros(len(examples), np.float64)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for number, rows in enumerate(
            batches_in_order(examples.sizes, EVALUATION_BATCH)
        ):
            if number % world != rank:
                continue
            batch = examples.batch(rows).to(device)
            logits = model(**batch.inputs).logits.float()
            predicted[rows] = logits.argmax(-1).cpu().numpy()
            loss = F.cross_entropy(logits, batch.labels, reduction="none")
            losses[rows] = loss.cpu().numpy()
    model.train(was_training)
    if world > 1:
        # Every example was done by one process and is zero in the others.
        predicted, losses = _summed(predicted, device), _summed(losses, device)
    return Evaluation(predicted, predicted == examples.labels, float(losses.mean()))


def _summed(values: np.ndarray, device: torch.device | str) -> np.ndarray:
    tensor = torch.from_numpy(values).to(device)
    torch.distributed.all_reduce(tensor)
    return tensor.cpu().numpy()
