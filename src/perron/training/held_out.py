"""Examples to test a saved model on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perron.data.batches import Examples
from perron.data.load import PARTS, load_data, load_split
from perron.data.settings import PACKAGED, DataSettings
from perron.errors import DataError, SettingsError
from perron.pipeline import Pipeline
from perron.training.run import read_settings


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
