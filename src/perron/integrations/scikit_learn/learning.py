"""Fitting of the scikit-learn estimators: initial model and training."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from datasets import Dataset, Features, List, Value
from torch.nn import functional as F

from perron.integrations.scikit_learn.parameters import Parameters
from perron.models import Classifier, ModelConfig, build_model
from perron.pipeline import Pipeline
from perron.text.batches import Examples, epoch_batches
from perron.text.encoding import WordIds
from perron.text.vocabulary import choose_lexicon, count_words
from perron.training.evaluate import evaluate
from perron.training.loop import make_optimiser
from perron.training.recipe import TrainingSettings
from perron.training.state import Standing, learning_rate


def new_pipeline(
    parameters: Parameters, texts: Sequence[str], labels: Sequence[str], seed: int
) -> Pipeline:
    """Choose the vocabulary, read word vectors, and make a model with random weights.

    Takes torch's random numbers from where they are.
    """
    text = parameters.text
    parameters.model()  # refuses a wrong one before anything is read
    counts = count_words([texts], text.case)
    if parameters.max_vocabulary is not None:
        counts = dict(islice(counts.items(), parameters.max_vocabulary))
    lexicon = choose_lexicon(counts, text, parameters.sources)
    config = ModelConfig(
        settings=parameters.model(lexicon.width),
        vocabulary=len(lexicon.words),
        labels=tuple(labels),
        max_words=text.max_words,
    )
    model = build_model(config)
    if lexicon.sources:
        model.embedding.set_vectors(torch.from_numpy(lexicon.matrix(seed)))
    sizes = text.max_words, config.max_sentences
    return Pipeline(model, WordIds(lexicon.tokenizer, "text", *sizes))


def check_same_model(pipeline: Pipeline, parameters: Parameters) -> None:
    """Refuse to go on with a model that the parameters no longer describe."""
    config = pipeline.model.config
    wanted = parameters.model(config.settings.embedding.dim)
    changed = [
        name
        for name in type(wanted).model_fields
        if getattr(wanted, name) != getattr(config.settings, name)
    ]
    if parameters.max_words != config.max_words:
        changed.append("max_words")
    if changed:
        raise ValueError(
            "warm_start goes on with the model as it is, but the parameters now ask "
            f"for another {changed[0]}: change them back, or set warm_start=False"
        )


def check_same_classes(pipeline: Pipeline, labels: Sequence[str]) -> None:
    """Refuse labels that a model does not have, or that lack some of its own."""
    if set(labels) != set(pipeline.labels):
        raise ValueError(
            "to go on with a model, y must have the same classes: it has "
            f"{', '.join(pipeline.labels)}; y has {', '.join(labels)}"
        )


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
            score = float(np.average(result.correct, weights=held_out.weights.numpy()))
            history.scores.append(score)
            if standing.end_epoch(score, result.metrics["log_loss"], settings):
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
