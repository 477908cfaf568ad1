"""Stopped runs: their model can be used, and they can be finished."""

import json
import shutil

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from perron_tests.errors import mentions
from perron_tests.training import stopped_run, tiny_table, write_texts
from safetensors.torch import load, save_file

import perron
from perron.errors import DataError, PerronError, SettingsError
from perron.files import FolderLockedError, lock_folder
from perron.migrations import current_version
from perron.training import finish, read_recipe, train
from perron.training.callbacks import Callback, read_metrics
from perron.training.metrics import evaluate
from perron.training.prepare import prepare
from perron.training.run import read_predictions


@pytest.fixture
def recipe(tmp_path):
    return read_recipe(tiny_table(write_texts(tmp_path / "texts.csv")))


@pytest.fixture
def stopped(recipe, tmp_path):
    return stopped_run(recipe, tmp_path / "run", 2)


def best_record(folder):
    return [record for record in read_metrics(folder) if record["is_best"]][-1]


def test_a_stopped_run_holds_the_model_of_its_best_epoch(stopped, recipe):
    record = best_record(stopped)
    pipeline = perron.load(stopped)
    metrics = evaluate(pipeline.model, prepare(recipe).dev).metrics
    assert metrics == pytest.approx({name: record[f"dev_{name}"] for name in metrics})
    card = pipeline.card
    assert f"best epoch so far is {record['epoch'] + 1}" in card
    assert f"| dev accuracy | {100 * record['dev_accuracy']:.2f} % |" in card
    splits = {result.dataset_split for result in ModelCard(card).data.eval_results}
    assert splits == {"dev"}
    assert not list(stopped.glob("best-*"))


def test_a_resumed_run_uses_the_threads_that_it_started_with(
    recipe, tmp_path, monkeypatch
):
    torch.set_num_threads(2)
    stopped = stopped_run(recipe, tmp_path / "run", 2)
    torch.set_num_threads(1)
    copy = shutil.copytree(stopped, tmp_path / "copy")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    train(recipe, copy, resume=True)
    assert torch.get_num_threads() == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    train(recipe, stopped, resume=True)
    assert torch.get_num_threads() == 2


class PredictDuringTraining(Callback):
    """Uses the model in the folder of a run from the second epoch on."""

    def __init__(self, folder):
        self.folder, self.predictions = folder, []

    def on_epoch_begin(self, loop, steps):
        if loop.state.epoch:
            self.predictions += perron.load(self.folder).predict(["a lovely film"])


def test_the_model_can_be_used_during_training(recipe, tmp_path):
    callback = PredictDuringTraining(tmp_path / "run")
    train(recipe, tmp_path / "run", callbacks=[callback])
    assert len(callback.predictions) == 3


def test_a_run_replaces_another_model_after_its_first_epoch(recipe, tmp_path):
    folder = tmp_path / "run"
    other = read_recipe(tiny_table(tmp_path / "texts.csv", "max"))
    train(other, folder)
    (folder / "settings.toml").unlink()
    stopped_run(recipe, folder, 1)
    assert perron.load(folder).model.config.settings.aggregator.name == "centrality"


def test_a_stopped_run_can_be_finished(stopped, recipe):
    record = best_record(stopped)
    weights = (stopped / "model.safetensors").read_bytes()
    result = finish(stopped)
    assert (result.epochs, result.best_epoch) == (2, record["epoch"])
    assert result.dev["accuracy"] == record["dev_accuracy"]
    predicted, expected = read_predictions(stopped)
    assert result.test["accuracy"] == (predicted == expected).mean()
    assert np.sum(result.confusion) == len(expected)
    assert (stopped / "model.safetensors").read_bytes() == weights
    card = (stopped / "README.md").read_text()
    assert "| test accuracy |" in card
    assert "so far" not in card
    assert (stopped / "curves.png").exists()
    assert not (stopped / "checkpoint.safetensors").exists()
    assert train(recipe, stopped, resume=True) == result
    assert finish(stopped) == result


def test_finish_uses_the_best_epoch_of_the_checkpoint(stopped):
    """Simulate a run that was killed right after the checkpoint was written."""
    best = best_record(stopped)["epoch"]
    weights = stopped / "model.safetensors"
    expected = weights.read_bytes()
    weights.rename(stopped / f"best-{best}.safetensors")
    tensors = {name: tensor + 1 for name, tensor in load(expected).items()}
    save_file(tensors, weights)
    finish(stopped)
    assert weights.read_bytes() == expected


def test_a_run_without_an_epoch_cannot_be_finished(recipe, tmp_path, stopped):
    from perron.training.checkpoint import Checkpoint

    saved = Checkpoint.read(stopped)
    saved.state["best_epoch"] = None
    saved.write(stopped)
    with pytest.raises(SettingsError, match=mentions("epoch", "--resume")):
        finish(stopped)
    (stopped / "checkpoint.safetensors").unlink()
    with pytest.raises(SettingsError, match=mentions("epoch", "--resume")):
        finish(stopped)
    with pytest.raises(SettingsError, match=mentions("settings.toml")):
        finish(tmp_path)


def test_a_locked_run_cannot_be_finished(stopped):
    with lock_folder(stopped), pytest.raises(FolderLockedError):
        finish(stopped)


def test_a_run_whose_data_changed_cannot_be_finished(stopped, tmp_path):
    write_texts(tmp_path / "texts.csv", seed=1)
    with pytest.raises(PerronError, match=mentions("data", "changed")):
        finish(stopped)
    assert (stopped / "checkpoint.safetensors").exists()


@pytest.mark.parametrize("folder", ["run", "runs/today/run"])
def test_a_run_that_fails_before_its_first_step_leaves_no_folder(
    recipe, tmp_path, folder
):
    (tmp_path / "texts.csv").unlink()
    with pytest.raises(DataError, match=mentions("texts.csv")):
        train(recipe, tmp_path / folder)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_run_without_a_step_leaves_no_folder(recipe, tmp_path):
    def interrupt(prepared):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "run", on_data_ready=interrupt)
    assert not (tmp_path / "run").exists()


def test_existing_folders_and_other_files_are_kept(recipe, tmp_path):
    (tmp_path / "texts.csv").unlink()
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(DataError):
        train(recipe, folder)
    assert folder.exists()
    shutil.rmtree(folder)

    write_texts(tmp_path / "texts.csv")

    def write_and_fail(prepared):
        (folder / "notes.txt").write_text("important")
        raise SettingsError("rejected")

    with pytest.raises(SettingsError, match="rejected"):
        train(recipe, folder, on_data_ready=write_and_fail)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


class TestTrackers:
    def test_an_epoch_is_logged_to_tensorboard(self, recipe, tmp_path):
        from tensorboard.backend.event_processing.event_accumulator import (
            EventAccumulator,
        )

        train(recipe, tmp_path / "run", log_with=["tensorboard"])
        (events,) = (tmp_path / "run/tensorboard/perron").glob("events*")
        logged = EventAccumulator(str(events)).Reload()
        values = [event.value for event in logged.Scalars("dev_macro_f1")]
        records = read_metrics(tmp_path / "run")
        assert values == pytest.approx([r["dev_macro_f1"] for r in records])
        steps = [event.step for event in logged.Scalars("dev_macro_f1")]
        assert steps == [record["step"] for record in records]

    def test_an_unknown_or_missing_tracker_is_an_error(self, recipe, tmp_path):
        with pytest.raises(SettingsError, match=mentions("log_with", "'paper'")):
            train(recipe, tmp_path / "run", log_with=["paper"])
        with pytest.raises(SettingsError, match=mentions("swanlab", "installed")):
            train(recipe, tmp_path / "run", log_with=["swanlab"])
        assert not (tmp_path / "run").exists()


def test_the_files_of_a_run_have_a_format_version(recipe, tmp_path):
    train(recipe, tmp_path / "run")
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["format_version"] == current_version("result")
    first = (tmp_path / "run/metrics.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["format_version"] == current_version("metrics")
