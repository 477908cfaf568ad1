"""One training run in a folder of its own, from recipe to saved model."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from perron.errors import SettingsError, differences
from perron.files import locked, make_folder, remove_parts, write_whole
from perron.migrations import migrate, stamp
from perron.model_card import Score, model_card
from perron.models import Classifier
from perron.pipeline import Pipeline
from perron.text.vocabulary import VectorProgress
from perron.training.callbacks import Watcher, draw_curves, read_metrics
from perron.training.checkpoint import CHECKPOINT, best_path, remove_other_bests
from perron.training.evaluate import evaluate
from perron.training.graph_measures import measure_graphs
from perron.training.loop import Loop
from perron.training.metrics import format_metric, metric_title
from perron.training.prepare import Prepared, prepare, with_width
from perron.training.recipe import SETTINGS, Recipe, read_settings
from perron.training.state import Standing

RESULT = "result.json"
PREDICTIONS = "test_predictions.npz"


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


def make_accelerator(precision: str) -> Accelerator:
    """Return accelerate's object for this machine, as it was launched."""
    cpu = not torch.accelerator.is_available()
    if precision == "bf16" and not has_bf16():
        raise SettingsError(
            "training.precision = 'bf16': this device cannot; take 'auto' or 'fp32'"
        )
    if precision == "auto":  # on a CPU that has it, it is rarely faster
        precision = "bf16" if has_bf16() and not cpu else "fp32"
    # Its state is one for the whole process, and otherwise refuses a second run there
    # that has another precision.
    AcceleratorState._reset_state()
    return Accelerator(cpu=cpu, mixed_precision="bf16" if precision == "bf16" else "no")


def has_bf16() -> bool:
    """Return if this machine computes in bfloat16; on a CPU, if its LSTM does."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    if torch.accelerator.is_available():
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def train(
    recipe: Recipe,
    folder: Path,
    *,
    root: Path | None = None,
    resume: bool = False,
    watchers: Sequence[Watcher] = (),
    on_prepared: Callable[[Prepared], None] | None = None,
    vector_progress: VectorProgress | None = None,
) -> Result:
    """Train, test, and save the best epoch's model in the folder.

    Args:
        recipe: what to train.
        folder: of the run. With ``resume`` what is there goes on; without it must hold
            no run.
        root: folder of the datasets.
        resume: go on after the last checkpoint; a run that is over is left as it is.
        watchers: told how it goes.
        on_prepared: told what was read, before the first step; may refuse it.
        vector_progress: told how the reading of word vectors goes.
    """
    accelerator = make_accelerator(recipe.training.precision)
    if accelerator.is_main_process:
        _check_folder(recipe, folder, resume)
    accelerator.wait_for_everyone()
    if resume and (folder / RESULT).exists():
        if accelerator.is_main_process:
            _clear(folder)  # should it have been killed before it did so itself
        return read_result(folder)
    with locked(folder) if accelerator.is_main_process else nullcontext():
        if accelerator.is_main_process:
            remove_parts(folder)
        with accelerator.main_process_first():
            prepared = prepare(recipe, root, vector_progress)
        if accelerator.is_main_process:
            if on_prepared is not None:
                on_prepared(prepared)
            _settle(prepared.recipe, folder)
        standing = Loop(prepared, folder, accelerator, watchers).run()
        return _finish(prepared, folder, accelerator, standing)


def read_result(folder: Path) -> Result:
    """Read the result of a run that is over."""
    path = folder / RESULT
    return Result(**migrate("result", json.loads(path.read_text()), path))


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
        if recipe.width_is_found:  # and what decides it is not read yet
            width = read_settings(folder).model.embedding.dim
            recipe = with_width(recipe, width)
        _check_settings(recipe, folder)
    make_folder(folder)


def _settle(recipe: Recipe, folder: Path) -> None:
    """Write the effective settings; those of a resumed run must be the same."""
    if (folder / SETTINGS).exists():
        _check_settings(recipe, folder)
    else:
        write_whole(folder / SETTINGS, recipe.to_toml().encode())


def _check_settings(recipe: Recipe, folder: Path) -> None:
    before = read_settings(folder).model_dump(mode="json")
    if differing := differences(before, recipe.model_dump(mode="json")):
        raise SettingsError(
            f"{folder}: cannot go on with other settings than it began with: "
            f"{'; '.join(differing)}. Choose another folder with --out"
        )


def _finish(
    prepared: Prepared, folder: Path, accelerator: Accelerator, standing: Standing
) -> Result:
    """Test the best epoch, save it, and clear away what was for going on."""
    assert standing.best_epoch is not None
    if not accelerator.is_main_process:
        accelerator.wait_for_everyone()
        return read_result(folder)
    model = accelerator.unwrap_model(prepared.model)
    model.load_state_dict(load_file(best_path(folder, standing.best_epoch)))
    dev = evaluate(model, prepared.dev, accelerator.device)
    test = None
    if prepared.test is not None:
        test = evaluate(model, prepared.test, accelerator.device)
        np.savez(folder / PREDICTIONS, predicted=test.predicted, expected=test.labels)
    measured = measure_graphs(model, prepared.test or prepared.dev, accelerator.device)
    records = read_metrics(folder)
    result = Result(
        aggregator=prepared.recipe.model.aggregator.name,
        seed=prepared.recipe.training.seed,
        epochs=standing.epoch,
        best_epoch=standing.best_epoch,
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
    card = _card(prepared, model, result)
    Pipeline(model, prepared.word_ids, card=card).save_pretrained(folder)
    draw_curves(read_metrics(folder), folder / "curves.png")
    content = stamp("result", asdict(result))
    write_whole(folder / RESULT, json.dumps(content, indent=2).encode())
    _clear(folder)
    accelerator.wait_for_everyone()
    return result


def _card(prepared: Prepared, model: Classifier, result: Result) -> str:
    data = prepared.recipe.data.name or prepared.recipe.data.format
    facts = {"trained on": f"{data}, {len(prepared.train)} texts", "seed": result.seed}
    scores = [
        Score(data, part, name, metric_title(name), value, format_metric(name, value))
        for part, metrics in (("dev", result.dev), ("test", result.test or {}))
        for name, value in metrics.items()
    ]
    return model_card(model.config, facts, scores)


def _clear(folder: Path) -> None:
    """Remove what a run that is over needs no more."""
    (folder / CHECKPOINT).unlink(missing_ok=True)
    remove_other_bests(folder, None)


def _median(records: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(np.median([record[key] for record in records]))
