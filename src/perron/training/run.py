"""One training run in a folder of its own, from recipe to saved model."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator

from perron.errors import DataError, SettingsError, differences
from perron.files import atomic_write, lock_folder, make_folder, remove_temporary_files
from perron.hub import Score, model_card
from perron.migrations import from_table, stamp
from perron.models.config import (
    CARD,
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    load_weights,
    model_files,
)
from perron.text.vocabulary import VectorProgress
from perron.training.callbacks import (
    METRICS_FILE,
    Callback,
    MetricsFile,
    Trackers,
    check_trackers,
    draw_curves,
    part_metrics,
    read_metrics,
)
from perron.training.checkpoint import (
    CHECKPOINT,
    BestModel,
    Checkpoint,
    Checkpointing,
    check_fingerprint,
    remove_staged,
)
from perron.training.loop import Loop, make_accelerator
from perron.training.metrics import (
    evaluate,
    format_metric,
    measure_graphs,
    metric_title,
)
from perron.training.prepare import PreparedRun, prepare, with_embedding_dim
from perron.training.recipe import SETTINGS, Recipe, read_settings
from perron.training.state import TrainState, defer_signals

RESULT = "result.json"
PREDICTIONS = "test_predictions.npz"
CURVES = "curves.png"
LOGS = "tensorboard"  # folder of the files of trackers


@dataclass(frozen=True)
class Result:
    """The outcome of a run; written as result.json.

    Attributes:
        aggregator: Name of the aggregator.
        seed: Random seed.
        epochs: Number of epochs that were trained.
        best_epoch: Epoch whose model is saved, counted from 0.
        dev: Metrics of that epoch on dev data, by name.
        test: Metrics of that epoch on test data; None without test data.
        texts_per_second: Speed of training, the median of the epochs.
        epoch_seconds: Seconds of training per epoch without evaluation, the median.
        majority_share: Share of the most frequent class in dev, which a useful model
            exceeds in accuracy.
        parameters: Number of trained parameters.
        fingerprint: Hash of texts, labels and vocabulary.
        graphs: The `GraphMeasure` of each level, on test data (dev data without test
            data).
        confusion: Number of examples by true class (row) and predicted class, of test
            data (dev data without test data); empty in results of version 1.
    """

    aggregator: str
    seed: int
    epochs: int
    best_epoch: int
    dev: Mapping[str, float]
    test: Mapping[str, float] | None
    texts_per_second: float
    epoch_seconds: float
    majority_share: float
    parameters: int = 0
    fingerprint: str = ""
    graphs: Sequence[Mapping[str, Any]] = ()
    confusion: Sequence[Sequence[int]] = ()


def train(
    recipe: Recipe,
    folder: Path,
    *,
    root: Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    log_with: Sequence[str] = (),
    on_data_ready: Callable[[PreparedRun], None] | None = None,
    vector_progress: VectorProgress | None = None,
) -> Result:
    """Train a model, test its best epoch, and save it in a folder.

    The folder holds the best model so far from the end of the first epoch on.

    Args:
        recipe: Settings of the run.
        folder: Folder of the run, which must not hold another one.
        root: Folder of the datasets.
        resume: Continue a run from its last checkpoint, if there is one. A run that is
            over is left as it is.
        callbacks: Called in the main process, before the checkpoint is written.
        log_with: Experiment trackers of accelerate: tensorboard, wandb and others.
        on_data_ready: Called with the data and the model before the first step; may
            raise an error.
        vector_progress: Called while word vectors are read.
    """
    check_trackers(log_with)
    accelerator = make_accelerator(recipe.training.precision, log_with, folder / LOGS)
    with _run_folder(recipe, folder, accelerator, resume) as is_over:
        if is_over:
            return read_result(folder)
        with accelerator.main_process_first():  # others find the data in the cache
            prepared = prepare(recipe, root, vector_progress)
        if accelerator.is_main_process:
            if on_data_ready is not None:
                on_data_ready(prepared)
            _settle(prepared.recipe, folder)
        metrics = MetricsFile(folder)
        best = _best_model(prepared, folder)
        checkpoints = Checkpointing(
            folder, accelerator, lambda: prepared.fingerprint, metrics, best
        )
        used: list[Callback] = [checkpoints]
        if accelerator.is_main_process:
            used = [metrics, best, *callbacks, checkpoints]
            if log_with:
                config = prepared.recipe.model_dump(mode="json")
                used.insert(0, Trackers(accelerator, config))
        with defer_signals() as request:
            loop = Loop(
                prepared.model,
                recipe.training,
                prepared.train,
                prepared.dev,
                accelerator=accelerator,
                callbacks=used,
                stop=request,
            )
            checkpoints.restore(loop)
            state = loop.run()
        return _finish(prepared, folder, accelerator, state)


def finish(
    folder: Path,
    *,
    root: Path | None = None,
    on_data_ready: Callable[[PreparedRun], None] | None = None,
    vector_progress: VectorProgress | None = None,
) -> Result:
    """Finish a run that was stopped: test its best epoch so far, and end it there.

    Afterwards the folder is that of any run that is over, and cannot be resumed.

    Args:
        folder: Folder of the run.
        root: Folder of the datasets.
        on_data_ready: Called with the data and the model.
        vector_progress: Called while word vectors are read.

    Raises:
        SettingsError: There is no run in the folder, or it has not finished an epoch.
        FolderLockedError: A process is training in the folder.
    """
    recipe = read_settings(folder)
    accelerator = make_accelerator(recipe.training.precision)
    with _run_folder(recipe, folder, accelerator, resume=True) as is_over:
        if is_over:
            return read_result(folder)
        has_checkpoint = (folder / CHECKPOINT).exists()
        saved = Checkpoint.read(folder) if has_checkpoint else None
        if saved is None or (best_epoch := saved.state["best_epoch"]) is None:
            raise SettingsError(
                f"{folder}: no epoch of this run is complete, so there is no model to "
                f"finish it with. Resume it: perron train --resume --out {folder}"
            )
        with accelerator.main_process_first():
            prepared = prepare(recipe, root, vector_progress)
        if accelerator.is_main_process:
            check_fingerprint(saved, prepared.fingerprint, folder)
            if on_data_ready is not None:
                on_data_ready(prepared)
            _best_model(prepared, folder).publish(best_epoch)
        prepared.model.to(accelerator.device)
        return _finish(prepared, folder, accelerator, TrainState(**saved.state))


@contextmanager
def _run_folder(
    recipe: Recipe, folder: Path, accelerator: Accelerator, resume: bool
) -> Iterator[bool]:
    """Lock the folder of a run, and yield whether the run is over.

    A folder that is made here and stays without a checkpoint is removed again if the
    run fails.
    """
    if not accelerator.is_main_process:
        accelerator.wait_for_everyone()
        yield resume and (folder / RESULT).exists()
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    _check_folder(recipe, folder, resume)
    accelerator.wait_for_everyone()
    is_over = resume and (folder / RESULT).exists()
    if is_over:
        _clear(folder)  # in case it was killed before it could do so
    try:
        with nullcontext() if is_over else lock_folder(folder):
            remove_temporary_files(folder)
            yield is_over
    except BaseException:
        if missing and not (folder / CHECKPOINT).exists():
            _remove_traces(folder, missing)
        raise


def _remove_traces(folder: Path, made: Sequence[Path]) -> None:
    """Remove the files of a run that took no step, and folders that are then empty."""
    shutil.rmtree(folder / LOGS, ignore_errors=True)
    with suppress(OSError):  # something else is in a folder: leave it
        for name in (SETTINGS, METRICS_FILE, ".lock"):
            (folder / name).unlink(missing_ok=True)
        for path in made:
            path.rmdir()


def read_result(folder: Path) -> Result:
    """Read the result of a run that is over."""
    path = folder / RESULT
    try:
        table = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"is not valid JSON: {error}", path) from error
    return from_table(Result, "result", table, path)


def read_predictions(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the predicted and the true class of each test example of a run."""
    with np.load(folder / PREDICTIONS, allow_pickle=False) as kept:
        return kept["predicted"], kept["expected"]


def _check_folder(recipe: Recipe, folder: Path, resume: bool) -> None:
    """Make the folder; refuse one with another run, be that over or not."""
    if (folder / SETTINGS).exists():
        if not resume:
            raise SettingsError(
                f"{folder} holds a run already: go on with --resume, or choose another "
                "folder with --out"
            )
        if recipe.infers_embedding_dim:  # and what decides it is not read yet
            width = read_settings(folder).model.embedding.embedding_dim
            model = with_embedding_dim(recipe.model, width)
            recipe = recipe.model_copy(update={"model": model})
        _check_settings(recipe, folder)
    make_folder(folder)


def _settle(recipe: Recipe, folder: Path) -> None:
    """Write the effective settings; those of a resumed run must be the same."""
    if (folder / SETTINGS).exists():
        _check_settings(recipe, folder)
    else:
        atomic_write(folder / SETTINGS, recipe.to_toml().encode())


def _check_settings(recipe: Recipe, folder: Path) -> None:
    before = read_settings(folder).model_dump(mode="json")
    if differing := differences(before, recipe.model_dump(mode="json")):
        raise SettingsError(
            f"{folder}: cannot go on with other settings than it began with: "
            f"{'; '.join(differing)}. Choose another folder with --out"
        )


def _best_model(prepared: PreparedRun, folder: Path) -> BestModel:
    """Return the callback that keeps the best model in the folder."""
    files = {
        TOKENIZER: prepared.processor.tokenizer.to_json().encode(),
        CONFIG: model_files(prepared.model.config, {})[CONFIG],
    }

    def card(epoch: int) -> str:
        record = read_metrics(folder)[epoch]
        facts = {"status": f"in training; the best epoch so far is {epoch + 1}"}
        return _card(prepared, {"dev": part_metrics(record, "dev")}, facts)

    return BestModel(folder, files, card)


def _finish(
    prepared: PreparedRun, folder: Path, accelerator: Accelerator, state: TrainState
) -> Result:
    """Evaluate the best epoch, write the result, then delete the checkpoint."""
    if not accelerator.is_main_process:
        accelerator.wait_for_everyone()
        return read_result(folder)
    model = prepared.model
    load_weights(model, {WEIGHTS: folder / WEIGHTS})
    dev = evaluate(model, prepared.dev, accelerator.device)
    test = None
    if prepared.test is not None:
        test = evaluate(model, prepared.test, accelerator.device)
        np.savez(folder / PREDICTIONS, predicted=test.predicted, expected=test.labels)
    measured = measure_graphs(model, prepared.test or prepared.dev, accelerator.device)
    records = read_metrics(folder)
    assert state.best_epoch is not None
    result = Result(
        aggregator=prepared.recipe.model.aggregator.name,
        seed=prepared.recipe.training.seed,
        epochs=state.epoch,
        best_epoch=state.best_epoch,
        dev=dev.metrics,
        test=None if test is None else test.metrics,
        texts_per_second=_median(records, "texts_per_second"),
        epoch_seconds=_median(records, "seconds"),
        majority_share=float(np.bincount(dev.labels).max() / len(dev.labels)),
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        fingerprint=prepared.fingerprint,
        graphs=[asdict(measure) for measure in measured],
        confusion=(test or dev).confusion.tolist(),
    )
    scores = {"dev": result.dev, "test": result.test or {}}
    atomic_write(folder / CARD, _card(prepared, scores, {}).encode())
    draw_curves(records, folder / CURVES)
    content = stamp("result", asdict(result))
    atomic_write(folder / RESULT, json.dumps(content, indent=2).encode())
    _clear(folder)
    accelerator.wait_for_everyone()
    return result


def _card(
    prepared: PreparedRun,
    metrics: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, object],
) -> str:
    """Return the model card.

    Args:
        prepared: Data and model.
        metrics: Metrics by part of the data and name.
        facts: Further rows of its table.
    """
    recipe = prepared.recipe
    data = recipe.data.name or recipe.data.format
    rows = {
        "trained on": f"{data}, {len(prepared.train)} texts",
        "seed": recipe.training.seed,
        **facts,
    }
    scores = [
        Score(data, part, name, metric_title(name), value, format_metric(name, value))
        for part, values in metrics.items()
        for name, value in values.items()
    ]
    return model_card(prepared.model.config, rows, scores)


def _clear(folder: Path) -> None:
    """Remove what a run that is over no longer needs."""
    (folder / CHECKPOINT).unlink(missing_ok=True)
    remove_staged(folder)


def _median(records: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(np.median([record[key] for record in records]))
