"""Training in memory: the rules of `perron.training`, without its folder of files."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from datasets import Dataset, Features, List, Value
from torch.nn import functional as F

from perron.data.batches import Examples, epoch_batches
from perron.data.ids import WordIds
from perron.models import Classifier
from perron.training.evaluation import evaluate
from perron.training.loop import make_optimiser
from perron.training.schedule import Standing, learning_rate
from perron.training.settings import TrainingSettings

# Called after an epoch with its number, from 1, its loss, and the score held out.
Report = Callable[[int, float, float | None], None]


@dataclass(frozen=True)
class Weighted:
    """Examples, and what each of them counts.

    Attributes:
        examples: ids and classes.
        weights: float32, of mean one.
    """

    examples: Examples
    weights: torch.Tensor


@dataclass
class History:
    """What `learn` found.

    Attributes:
        losses: of the texts learnt from, an epoch each.
        scores: of the texts held out, an epoch each; empty without such texts.
    """

    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)


def weighted(
    word_ids: WordIds, texts: Sequence[str], classes: np.ndarray, weights: np.ndarray
) -> Weighted:
    """Encode texts, with a class and a weight each, in memory."""
    rows = word_ids.rows(texts)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    types = {name: List(Value("int32")) for name in columns}  # be all texts empty
    dataset = Dataset.from_dict(
        {**columns, "label": classes.tolist()},
        Features({**types, "label": Value("int64")}),
    )
    even = torch.from_numpy(weights / weights.mean()).float()
    return Weighted(Examples(dataset), even)


def learn(
    model: Classifier,
    settings: TrainingSettings,
    train: Weighted,
    held_out: Weighted | None,
    report: Report,
) -> History:
    """Train a model; leave in it the weights of the best epoch, or of the last.

    The best epoch is the one with the best accuracy on the texts held out. Without
    such texts every epoch of ``settings.max_epochs`` is trained.
    """
    device = next(model.parameters()).device
    optimiser = make_optimiser(model, settings)
    standing, history = Standing(settings.batch_size), History()
    best: dict[str, torch.Tensor] = {}
    while not standing.finished:
        model.train()
        for rows in epoch_batches(
            train.examples.sizes, standing.batch_size, settings.seed, standing.epoch
        ):
            for group in optimiser.param_groups:
                group["lr"] = group["rate"] * learning_rate(standing.step, settings)
            loss = _loss(model, train, rows, device)
            (loss / len(rows)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimiser.step()
            optimiser.zero_grad()
            standing.count(_finite(loss), 0, len(rows), 0.0)
        history.losses.append(standing.loss / standing.seen)
        score = None
        if held_out is None:
            standing.end_epoch(0.0, 0.0, settings)
        else:
            result = evaluate(model, held_out.examples, device)
            score = float(np.average(result.right, weights=held_out.weights.numpy()))
            history.scores.append(score)
            if standing.end_epoch(score, result.loss, settings):
                best = {name: t.clone() for name, t in model.state_dict().items()}
        report(standing.epoch, history.losses[-1], score)
    if best:
        model.load_state_dict(best)
    return history


def _loss(
    model: Classifier, train: Weighted, rows: np.ndarray, device: torch.device
) -> torch.Tensor:
    """Return the weighted sum of the cross entropies of these rows."""
    batch = train.examples.batch(rows).to(device)
    logits = model(**batch.inputs).logits.float()
    each = F.cross_entropy(logits, batch.labels, reduction="none")
    return (each * train.weights[rows].to(device)).sum()


def _finite(loss: torch.Tensor) -> float:
    value = loss.item()
    if not math.isfinite(value):
        raise ValueError(f"the loss became {value}: try a lower learning_rate")
    return value
