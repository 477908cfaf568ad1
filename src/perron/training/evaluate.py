"""Evaluation of a model on held-out examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch.nn import functional as F

from perron.errors import DataError, SettingsError
from perron.pipeline import Pipeline
from perron.text.batches import Examples, batches_in_order
from perron.text.datasets import PARTS, load_data, load_split
from perron.text.settings import PACKAGED, DataSettings
from perron.training.recipe import read_settings

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


def held_out_examples(
    pipeline: Pipeline, folder: Path, part: str, root: Path | None = None
) -> Examples:
    """Return a part of the data that the model in a folder was trained with."""
    if part not in PARTS:
        raise SettingsError(f"--part {part}: is one of {', '.join(PARTS)}")
    settings = read_settings(folder).data
    splits = load_data(settings, root)
    if splits.labels != pipeline.labels:
        raise DataError("the classes in its data have changed; give --data", folder)
    rows = getattr(splits, part)
    if rows is None:
        raise SettingsError(f"{folder}: was trained without {part} data; give --data")
    return _examples(pipeline, rows, settings)


def other_examples(
    pipeline: Pipeline, table: Mapping[str, Any], part: str, root: Path | None = None
) -> Examples:
    """Return other data for a model, with the labels that the model knows.

    Args:
        pipeline: the model.
        table: settings of the data; a file is read whole, it is their ``train``.
        part: what is read of data that are no file: a split of the hub, or train, dev
            or test of packaged data.
        root: folder of the datasets.
    """
    try:
        settings = DataSettings.model_validate(table)
    except ValidationError as error:
        raise SettingsError(str(error.errors()[0]["msg"])) from error
    is_pair = settings.text_pair is not None
    if is_pair != (pipeline.word_ids.kind == "pair"):
        wanted = "pairs" if pipeline.word_ids.kind == "pair" else "single texts"
        raise SettingsError(f"--text-pair: this model is for {wanted}")
    is_file = settings.format not in (*PACKAGED, "hub")
    name = str(settings.train) if is_file else part
    rows = load_split(settings, name, pipeline.labels, root).rows
    return _examples(pipeline, rows, settings)


def _examples(pipeline: Pipeline, rows: Any, settings: DataSettings) -> Examples:
    word_ids = pipeline.word_ids.reading(settings.tokenised, settings.sentence_mark)
    return Examples(word_ids.encode_dataset(rows))
