"""Training runs: from a recipe to a saved model in the folder of the run."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
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
    draw_plots,
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
    fit_temperature,
    format_metric,
    measure_graphs,
    metric_title,
)
from perron.training.prepare import PreparedRun, prepare, with_embedding_dim
from perron.training.recipe import SETTINGS, Recipe, read_settings
from perron.training.state import TrainState, defer_signals
from perron.training.state_cache import EncodingProgress

RESULT = "result.json"
PREDICTIONS = "test_predictions.npz"
LOGS = "tensorboard"  # folder of the experiment trackers


@dataclass(frozen=True)
class Result:
    """The outcome of a run; written as result.json.

    Attributes:
        aggregator: Name of the aggregator.
        seed: Random seed.
        epochs: Number of epochs trained.
        best_epoch: Epoch of the saved model, counted from 0.
        dev: Metrics of the best epoch on dev data, by name.
        test: Metrics of the best epoch on test data; None without test data.
        texts_per_second: Median training speed over epochs.
        epoch_seconds: Median training time per epoch, without evaluation.
        majority_share: Fraction of dev examples in the most frequent class. A useful
            model has a higher accuracy.
        parameters: Number of trained parameters.
        fingerprint: Hash of texts, labels and vocabulary.
        graphs: `GraphMeasure` of each pooling level, on test data (or dev data without
            test data).
        confusion: Number of examples per true class (row) and predicted class, on test
            data (or dev data without test data). Empty in results of version 1.
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
    encoding_progress: EncodingProgress | None = None,
) -> Result:
    """Train a model, save its best epoch in a folder, and evaluate it.

    From the end of the first epoch on, the folder holds the best model so far.

    Args:
        recipe: Settings of the run.
        folder: Folder of the run. Must not contain another run.
        root: Folder of the datasets.
        resume: Whether to resume from the last checkpoint, if there is one. If the
            run has finished, its result is returned.
        callbacks: Callbacks, called in the main process before the checkpoint is
            written.
        log_with: Experiment trackers supported by accelerate, such as tensorboard or
            wandb.
        on_data_ready: Called with the data and the model before the first step. May
            raise an error.
        vector_progress: Callback for the progress of reading word vectors.
        encoding_progress: Callback for the progress of caching encoder states.
    """
    check_trackers(log_with)
    accelerator = make_accelerator(recipe.training.precision, log_with, folder / LOGS)
    with _run_folder(recipe, folder, accelerator, resume) as is_finished:
        if is_finished:
            return read_result(folder)
        with accelerator.main_process_first():  # it fills the cache for the others
            progress = vector_progress, encoding_progress
            prepared = prepare(recipe, root, *progress, accelerator.device)
        if accelerator.is_main_process:
            if on_data_ready is not None:
                on_data_ready(prepared)
            _write_settings(prepared.recipe, folder)
        metrics = MetricsFile(folder)
        best = _best_model(prepared, folder)
        checkpoints = Checkpointing(
            folder, accelerator, lambda: prepared.fingerprint, metrics, best
        )
        all_callbacks: list[Callback] = [checkpoints]
        if accelerator.is_main_process:
            all_callbacks = [metrics, best, *callbacks, checkpoints]
            if log_with:
                config = prepared.recipe.model_dump(mode="json")
                all_callbacks.insert(0, Trackers(accelerator, config))
        with defer_signals() as request:
            loop = Loop(
                prepared.model,
                recipe.training,
                prepared.train,
                prepared.dev,
                accelerator=accelerator,
                callbacks=all_callbacks,
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
    encoding_progress: EncodingProgress | None = None,
) -> Result:
    """Finish a stopped run without further training: evaluate its best epoch so far.

    The run cannot be resumed afterward.

    Args:
        folder: Folder of the run.
        root: Folder of the datasets.
        on_data_ready: Called with the data and the model.
        vector_progress: Callback for the progress of reading word vectors.
        encoding_progress: Callback for the progress of caching encoder states.

    Raises:
        SettingsError: If the folder does not contain a run, or no epoch is complete.
        FolderLockedError: If another process is training in the folder.
    """
    recipe = read_settings(folder)
    accelerator = make_accelerator(recipe.training.precision)
    with _run_folder(recipe, folder, accelerator, resume=True) as is_finished:
        if is_finished:
            return read_result(folder)
        saved = Checkpoint.read(folder) if (folder / CHECKPOINT).exists() else None
        if saved is None or (best_epoch := saved.state["best_epoch"]) is None:
            raise SettingsError(
                f"{folder}: no epoch of this run is complete, so there is no model to "
                f"evaluate. Resume it with: perron train --resume --out {folder}"
            )
        with accelerator.main_process_first():
            progress = vector_progress, encoding_progress
            prepared = prepare(recipe, root, *progress, accelerator.device)
        if accelerator.is_main_process:
            check_fingerprint(saved, prepared.fingerprint, folder, prepared.model)
            if on_data_ready is not None:
                on_data_ready(prepared)
            _best_model(prepared, folder).publish(best_epoch)
        return _finish(prepared, folder, accelerator, TrainState(**saved.state))


@contextmanager
def _run_folder(
    recipe: Recipe, folder: Path, accelerator: Accelerator, resume: bool
) -> Iterator[bool]:
    """Create and lock the folder of a run, and yield whether the run has finished.

    If the run fails before its first checkpoint, a folder created here is removed.
    """
    if not accelerator.is_main_process:
        accelerator.wait_for_everyone()
        yield resume and (folder / RESULT).exists()
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    _check_folder(recipe, folder, resume)
    accelerator.wait_for_everyone()
    is_finished = resume and (folder / RESULT).exists()
    if is_finished:
        _remove_checkpoints(folder)  # in case the process was killed before doing so
    try:
        with nullcontext() if is_finished else lock_folder(folder):
            remove_temporary_files(folder)
            yield is_finished
    except BaseException:
        if missing and not (folder / CHECKPOINT).exists():
            _remove_run(folder, missing)
        raise


def _remove_run(folder: Path, created: Sequence[Path]) -> None:
    """Remove the files of a run without a checkpoint, and the folders it created."""
    shutil.rmtree(folder / LOGS, ignore_errors=True)
    with suppress(OSError):  # keep folders that contain other files
        for name in (SETTINGS, METRICS_FILE, ".lock"):
            (folder / name).unlink(missing_ok=True)
        for path in created:
            path.rmdir()


def read_result(folder: Path) -> Result:
    """Read the result of a finished run."""
    path = folder / RESULT
    try:
        table = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"is not valid JSON: {error}", path) from error
    return from_table(Result, "result", table, path)


def read_predictions(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the predicted and the true class of each test example of a run."""
    with np.load(folder / PREDICTIONS, allow_pickle=False) as arrays:
        return arrays["predicted"], arrays["expected"]


def _check_folder(recipe: Recipe, folder: Path, resume: bool) -> None:
    """Create the folder, or check that the run in it can be resumed."""
    if (folder / SETTINGS).exists():
        if not resume and (folder / RESULT).exists():
            raise SettingsError(
                f"{folder} already contains a finished run. Choose another folder with "
                "--out, or delete this one."
            )
        if not resume:
            raise SettingsError(
                f"{folder} already contains a run. Resume it with --resume, or choose "
                "another folder with --out."
            )
        if recipe.infers_embedding_dim:  # from word vectors that are not read yet
            embedding_dim = read_settings(folder).model.embedding.embedding_dim
            model = with_embedding_dim(recipe.model, embedding_dim)
            recipe = recipe.model_copy(update={"model": model})
        _check_settings(recipe, folder)
    make_folder(folder)


def _write_settings(recipe: Recipe, folder: Path) -> None:
    """Write the effective settings, or check that those of a resumed run match."""
    if (folder / SETTINGS).exists():
        _check_settings(recipe, folder)
    else:
        atomic_write(folder / SETTINGS, recipe.to_toml().encode())


def _check_settings(recipe: Recipe, folder: Path) -> None:
    before = read_settings(folder).model_dump(mode="json")
    if differing := differences(before, recipe.model_dump(mode="json")):
        raise SettingsError(
            f"{folder}: a run must be resumed with its own settings, but "
            f"{'; '.join(differing)}. Choose another folder with --out."
        )


def _best_model(prepared: PreparedRun, folder: Path) -> BestModel:
    """Return the callback that keeps the best model in the folder."""
    files = {
        TOKENIZER: prepared.processor.tokenizer.to_json().encode(),
        CONFIG: model_files(prepared.model.config, {})[CONFIG],
    }

    def card(epoch: int) -> str:
        record = read_metrics(folder)[epoch]
        rows = {"status": f"in training; the best epoch so far is {epoch + 1}"}
        return _model_card(prepared, {"dev": part_metrics(record, "dev")}, rows)

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
    if prepared.recipe.training.calibrate:
        model.set_temperature(fit_temperature(dev))
        atomic_write(folder / CONFIG, model_files(model.config, {})[CONFIG])
        dev = evaluate(model, prepared.dev, accelerator.device)
    test = None
    if prepared.test is not None:
        test = evaluate(model, prepared.test, accelerator.device)
        np.savez(folder / PREDICTIONS, predicted=test.predicted, expected=test.labels)
    graphs = measure_graphs(model, prepared.test or prepared.dev, accelerator.device)
    records = read_metrics(folder)
    assert state.best_epoch is not None
    result = Result(
        aggregator=prepared.recipe.model.aggregator.name,
        seed=prepared.recipe.training.seed,
        epochs=state.epoch,
        best_epoch=state.best_epoch,
        dev=dev.metrics,
        test=None if test is None else test.metrics,
        texts_per_second=median(record["texts_per_second"] for record in records),
        epoch_seconds=median(record["seconds"] for record in records),
        majority_share=float(np.bincount(dev.labels).max() / len(dev.labels)),
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        fingerprint=prepared.fingerprint,
        graphs=[asdict(measure) for measure in graphs],
        confusion=(test or dev).confusion.tolist(),
    )
    scores = {"dev": result.dev, "test": result.test or {}}
    atomic_write(folder / CARD, _model_card(prepared, scores, {}).encode())
    draw_plots(folder, records, model.config.labels, result.confusion)
    content = stamp("result", asdict(result))
    atomic_write(folder / RESULT, json.dumps(content, indent=2).encode())
    _remove_checkpoints(folder)
    accelerator.wait_for_everyone()
    return result


def _model_card(
    prepared: PreparedRun,
    metrics: Mapping[str, Mapping[str, float]],
    extra_rows: Mapping[str, object],
) -> str:
    """Return the model card.

    Args:
        prepared: Data and model.
        metrics: Metrics by part of the data and name.
        extra_rows: Additional rows of the table.
    """
    recipe = prepared.recipe
    data = recipe.data.name or recipe.data.format
    rows = {
        "trained on": f"{data}, {len(prepared.train)} texts",
        "seed": recipe.training.seed,
        **extra_rows,
    }
    scores = [
        Score(data, part, name, metric_title(name), value, format_metric(name, value))
        for part, values in metrics.items()
        for name, value in values.items()
    ]
    return model_card(prepared.model.config, rows, scores)


def _remove_checkpoints(folder: Path) -> None:
    """Remove the files that are only needed to resume a run."""
    (folder / CHECKPOINT).unlink(missing_ok=True)
    remove_staged(folder)
