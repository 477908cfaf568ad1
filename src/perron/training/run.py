"""One training run in a folder of its own, from recipe to saved model."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from perron.errors import SettingsError
from perron.files import locked, make_folder, remove_parts, write_whole
from perron.model_card import Score, model_card
from perron.models import Classifier
from perron.pipeline import Pipeline
from perron.text.vocabulary import VectorProgress
from perron.training.callbacks import Watcher, draw_curves, read_metrics
from perron.training.checkpoint import CHECKPOINT, best_path, remove_other_bests
from perron.training.evaluate import evaluate
from perron.training.graph_measures import measure_graphs
from perron.training.loop import Loop
from perron.training.prepare import Prepared, prepare, with_width
from perron.training.recipe import SETTINGS, Recipe, read_settings
from perron.training.state import Standing

RESULT = "result.json"
PREDICTIONS = "test_predictions.npz"


@dataclass(frozen=True)
class Result:
    """How a run ended; written as result.json.

    Attributes:
        aggregator: its name.
        seed: of the run.
        epochs: that were trained.
        best_epoch: the one that was kept, from 0.
        dev_accuracy: of that epoch.
        test_accuracy: of that epoch; None without test data.
        texts_per_second: while training, the median of the epochs.
        epoch_seconds: of training, without evaluation, the median of the epochs.
        commonest: share of the commonest class in dev, the least to be better than.
        parameters: how many numbers were learnt.
        fingerprint: of the texts, labels and vocabulary.
        graphs: what `GraphMeasure` says of the word graphs, on test data (dev where
            there are none).
    """

    aggregator: str
    seed: int
    epochs: int
    best_epoch: int
    dev_accuracy: float
    test_accuracy: float | None
    texts_per_second: float
    epoch_seconds: float
    commonest: float
    parameters: int = 0  # these three are missing in old results
    fingerprint: str = ""
    graphs: Sequence[Mapping[str, Any]] = ()


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
    return Result(**json.loads((folder / RESULT).read_text()))


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
    if differing := _differences(before, recipe.model_dump(mode="json")):
        raise SettingsError(
            f"{folder}: cannot go on with other settings than it began with: "
            f"{'; '.join(differing)}. Choose another folder with --out"
        )


def _differences(before: object, now: object, key: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            line
            for name in before | now
            for line in _differences(
                before.get(name), now.get(name), f"{key}.{name}" if key else str(name)
            )
        ]
    return [] if before == now else [f"{key} was {before!r}, is {now!r}"]


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
    accuracy = None
    if prepared.test is not None:
        tested = evaluate(model, prepared.test, accelerator.device)
        expected = prepared.test.labels
        np.savez(folder / PREDICTIONS, predicted=tested.predicted, expected=expected)
        accuracy = tested.accuracy
    measured = measure_graphs(model, prepared.test or prepared.dev, accelerator.device)
    result = replace(
        _result(prepared, folder, standing, accuracy),
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        fingerprint=prepared.fingerprint,
        graphs=[asdict(measure) for measure in measured],
    )
    card = _card(prepared, model, result)
    Pipeline(model, prepared.word_ids, card=card).save_pretrained(folder)
    draw_curves(read_metrics(folder), folder / "curves.png")
    write_whole(folder / RESULT, json.dumps(asdict(result), indent=2).encode())
    _clear(folder)
    accelerator.wait_for_everyone()
    return result


def _card(prepared: Prepared, model: Classifier, result: Result) -> str:
    data = prepared.recipe.data.name or prepared.recipe.data.format
    facts = {"trained on": f"{data}, {len(prepared.train)} texts", "seed": result.seed}
    scores = [Score(data, "dev", result.dev_accuracy)]
    if result.test_accuracy is not None:
        scores.append(Score(data, "test", result.test_accuracy))
    return model_card(model.config, facts, scores)


def _clear(folder: Path) -> None:
    """Remove what a run that is over needs no more."""
    (folder / CHECKPOINT).unlink(missing_ok=True)
    remove_other_bests(folder, None)


def _result(
    prepared: Prepared, folder: Path, standing: Standing, test_accuracy: float | None
) -> Result:
    assert standing.best_epoch is not None
    records = read_metrics(folder)
    speeds = [record["texts_per_second"] for record in records]
    seconds = [record["seconds"] for record in records]
    return Result(
        prepared.recipe.model.aggregator.name,
        prepared.recipe.training.seed,
        standing.epoch,
        standing.best_epoch,
        standing.best_accuracy,
        test_accuracy,
        float(np.median(speeds)),
        float(np.median(seconds)),
        float(np.bincount(prepared.dev.labels).max() / len(prepared.dev)),
    )
