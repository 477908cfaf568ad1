"""Evaluation of a model on held-out examples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from perron.errors import DataError, SettingsError
from perron.models.config import problems
from perron.pipeline import Pipeline, pair_mismatch
from perron.text.batches import Examples, batches_in_order
from perron.text.datasets import PARTS, load_data, load_split
from perron.text.formats import formats
from perron.text.settings import DataSettings
from perron.training.metrics import Evaluation
from perron.training.recipe import read_settings

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
        raise SettingsError(problems(error)[0]) from error
    is_pair = settings.text_pair is not None
    if is_pair != (pipeline.word_ids.kind == "pair"):
        fix = "Leave out --text-pair." if is_pair else "Add --text-pair COLUMN."
        raise SettingsError(pair_mismatch(not is_pair, fix))
    is_file = formats[settings.format].location == "file"
    name = str(settings.train) if is_file else part
    rows = load_split(settings, name, pipeline.labels, root).rows
    return _examples(pipeline, rows, settings)


def _examples(pipeline: Pipeline, rows: Any, settings: DataSettings) -> Examples:
    word_ids = pipeline.word_ids.reading(settings.tokenised, settings.sentence_mark)
    return Examples(word_ids.encode_dataset(rows))
