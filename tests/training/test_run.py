"""Training runs in this process."""

import json
import shutil
import threading

import numpy as np
import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.training import stopped_run, tiny_table, write_texts
from safetensors.torch import load_file

import perron
from perron.errors import PerronError, SettingsError
from perron.models import ModelConfig, ModelSettings, TextClassifier
from perron.training import read_recipe, train
from perron.training.loop import make_optimizer
from perron.training.prepare import prepare
from perron.training.recipe import TrainingSettings
from perron.training.run import read_predictions


def recipe(folder, *overrides, aggregator="centrality"):
    table = tiny_table(write_texts(folder / "texts.csv"), aggregator)
    table["training"]["checkpoint_seconds"] = 1000.0
    return read_recipe(table, overrides)


AGGREGATORS = ["max", "mean", "self-attention", "intra-attention", "dynamic-routing"]


@pytest.mark.parametrize("aggregator", ["centrality", *AGGREGATORS])
def test_every_aggregator_learns(tmp_path, aggregator):
    settings = recipe(tmp_path, "training.max_epochs=10", aggregator=aggregator)
    result = train(settings, tmp_path / "run")
    assert result.dev["accuracy"] > 0.7
    assert result.aggregator == aggregator


def test_the_saved_model_is_that_of_the_best_epoch(tmp_path):
    folder = tmp_path / "run"
    result = train(recipe(tmp_path, "training.max_epochs=6"), folder)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    best = max(record["dev_accuracy"] for record in records)
    assert result.dev["accuracy"] == best
    assert records[result.best_epoch]["dev_accuracy"] == best
    predicted, expected = read_predictions(folder)
    assert (predicted == expected).mean() == result.test["accuracy"]
    prepared = prepare(recipe(tmp_path))
    labels = np.array(prepared.splits.labels)[prepared.dev.labels]
    texts = list(prepared.splits.dev["text"])
    predicted = np.array(perron.load(folder).predict(texts))
    assert (predicted == labels).mean() == best


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_the_same_seed_gives_the_same_weights_and_another_does_not(tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        train(recipe(tmp_path, f"training.seed={seed}"), tmp_path / name)
    one, two, other = (weights(tmp_path / name) for name in ("one", "two", "other"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)


def test_weight_decay_excludes_embeddings_and_biases():
    config = ModelConfig(
        settings=ModelSettings(
            embedding={"embedding_dim": 4}, encoder={"name": "bilstm"}
        ),
        vocab_size=9,
        labels=("a", "b"),
    )
    model = TextClassifier(config)
    groups = make_optimizer(model, TrainingSettings(weight_decay=0.3)).param_groups
    names = {id(value): name for name, value in model.named_parameters()}
    decayed = {
        names[id(value)]
        for group in groups
        for value in group["params"]
        if group["weight_decay"] == 0.3
    }
    excluded = set(names.values()) - decayed
    assert "embedding.vectors.weight" in excluded
    assert {name for name in excluded if name != "embedding.vectors.weight"} == {
        name for name in names.values() if "bias" in name
    }
    assert any("encoder" in name for name in decayed)


def test_frozen_vectors_do_not_change(tmp_path):
    settings = recipe(tmp_path, "model.embedding.freeze=true")
    before = prepare(settings).model.embedding.vectors.weight.clone()
    train(settings, tmp_path / "run")
    assert torch.equal(weights(tmp_path / "run")["embedding.vectors.weight"], before)


def test_word_vectors_set_the_embedding_dim_and_initialize_it(tmp_path):
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("film 1 2 3\nlovely 4 5 6\nunseen 7 8 9\n")
    second.write_text("lovely -1 -2 -3\nunseen -4 -5 -6\n")
    settings = recipe(
        tmp_path, f'vectors=["{first}", "{second}"]', "text.vector_words=3"
    )
    prepared = prepare(settings)
    assert prepared.recipe.model.embedding.embedding_dim == 6
    words = prepared.processor.tokenizer.words
    vectors = prepared.model.embedding.vectors.weight
    assert vectors[words.index("lovely")].tolist() == [4, 5, 6, -1, -2, -3]
    assert vectors[words.index("unseen")].tolist() == [7, 8, 9, -4, -5, -6]
    types_found = [coverage.types_found for coverage in prepared.coverage.values()]
    assert types_found == [2, 1]


def test_an_exploding_loss_is_a_clear_error(tmp_path):
    settings = recipe(
        tmp_path, "training.learning_rate=1e38", "training.max_grad_norm=1e38"
    )
    with pytest.raises(PerronError, match=mentions("loss", "nan", "learning_rate")):
        train(settings, tmp_path / "run")


def test_a_run_cannot_be_resumed_with_changed_data(tmp_path):
    settings = recipe(tmp_path)
    train(settings, tmp_path / "run")
    from perron.training.checkpoint import Checkpoint

    (tmp_path / "run/result.json").unlink()
    Checkpoint({}, {}, {}, [torch.zeros(1)], 0, "other").write(tmp_path / "run")
    with pytest.raises(PerronError, match=mentions("data", "changed")):
        train(settings, tmp_path / "run", resume=True)


def test_bf16_requires_device_support(tmp_path, monkeypatch):
    monkeypatch.setattr("perron.training.loop.has_bf16", lambda: False)
    with pytest.raises(SettingsError, match=mentions("training.precision", "bf16")):
        train(recipe(tmp_path, "training.precision=bf16"), tmp_path / "run")


def test_bf16_trains(tmp_path, monkeypatch):
    # CPUs without bfloat16 instructions still support it, except in the LSTM.
    monkeypatch.setattr("perron.training.loop.has_bf16", lambda: True)
    options = ["training.precision=bf16", "model.encoder=none", "training.max_epochs=8"]
    result = train(recipe(tmp_path, *options), tmp_path / "run")
    assert result.dev["accuracy"] > 0.7
    assert weights(tmp_path / "run")["head.layers.1.weight"].dtype == torch.float32


def test_a_run_resumes_without_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path / "cache"))
    settings = recipe(tmp_path)
    uninterrupted = train(settings, tmp_path / "uninterrupted")
    stopped_run(settings, tmp_path / "run", 2)
    shutil.rmtree(tmp_path / "cache")
    result = train(settings, tmp_path / "run", resume=True)
    assert result.dev == uninterrupted.dev
    one, other = weights(tmp_path / "uninterrupted"), weights(tmp_path / "run")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_cannot_be_resumed_with_other_texts(tmp_path):
    settings = recipe(tmp_path)
    stopped_run(settings, tmp_path / "run", 2)
    write_texts(tmp_path / "texts.csv", seed=1)
    with pytest.raises(PerronError, match=mentions("data", "changed")):
        train(settings, tmp_path / "run", resume=True)


def test_a_signal_after_the_last_batch_stops_the_run(tmp_path):
    settings = recipe(tmp_path)
    stopped_run(settings, tmp_path / "run", 4)
    assert train(settings, tmp_path / "run", resume=True).epochs == 4


def test_resuming_a_finished_run_checks_its_settings(tmp_path):
    folder = tmp_path / "run"
    result = train(recipe(tmp_path, "training.max_epochs=1"), folder)
    again = recipe(tmp_path, "training.max_epochs=1")
    assert train(again, folder, resume=True) == result
    with pytest.raises(SettingsError, match=mentions("max_epochs", 1, 2)):
        train(recipe(tmp_path, "training.max_epochs=2"), folder, resume=True)


def test_an_inferred_embedding_dim_is_not_a_changed_setting(tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("film 0.1 0.2 0.3\nday 0.2 0.1 0.4\n")
    settings = recipe(tmp_path, f"vectors=['{vectors}']", "training.max_epochs=1")
    result = train(settings, tmp_path / "run")
    assert train(settings, tmp_path / "run", resume=True) == result


def test_training_works_in_any_thread(tmp_path):
    results = []
    settings = recipe(tmp_path, "training.max_epochs=1")
    thread = threading.Thread(
        target=lambda: results.append(train(settings, tmp_path / "run"))
    )
    thread.start()
    thread.join()
    assert results[0].epochs == 1
