import json
import os
import pickle

import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.models import (
    AGGREGATORS,
    ENCODERS,
    KINDS,
    VOCAB_SIZE,
    batches,
    small_config,
    small_model,
)
from safetensors.torch import load_file, save_file

from perron.errors import DataError
from perron.migrations import current_version
from perron.models import TextClassifier, build_model, load_model

CONFIG, WEIGHTS = "config.json", "model.safetensors"


@pytest.fixture
def folder(tmp_path):
    small_model("text", "centrality", "bilstm").save_pretrained(tmp_path)
    return tmp_path


def change_config(folder, change):
    path = folder / CONFIG
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_a_saved_model_gives_the_same_logits(kind, aggregator, tmp_path):
    model = small_model(kind, aggregator, "bilstm")
    model.save_pretrained(tmp_path / "new" / "folder")
    loaded = load_model(tmp_path / "new" / "folder")
    flat, _ = batches(kind)
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded(**flat).logits, model(**flat).logits)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_saved_model_with_any_encoder_gives_the_same_logits(encoder, tmp_path):
    model = small_model("document", "mean", encoder, sentence_aggregator="max")
    model.save_pretrained(str(tmp_path))
    flat, _ = batches("document")
    loaded = type(model).from_pretrained(str(tmp_path))
    assert torch.equal(loaded(**flat).logits, model(**flat).logits)


def test_a_model_is_saved_as_two_files(folder):
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS]
    content = json.loads((folder / CONFIG).read_text())
    assert content["format_version"] == current_version("model")
    assert content["model"]["labels"] == ["bad", "fair", "good"]
    assert load_file(folder / WEIGHTS).keys() == load_model(folder).state_dict().keys()


def test_frozen_vectors_are_still_frozen_after_loading(tmp_path):
    model = small_model("text", embedding={"embedding_dim": 6, "freeze": True})
    model.save_pretrained(tmp_path)
    assert not load_model(tmp_path).embedding.vectors.weight.requires_grad


def test_saving_does_not_change_the_model(folder, tmp_path):
    model = build_model(small_config("text"))
    model.save_pretrained(tmp_path / "other")
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_loading_runs_no_code_from_the_folder(folder, tmp_path):
    boom = tmp_path / "boom"
    bomb = pickle.dumps(Bomb(boom))
    code = f"import os; os.mkdir({str(boom)!r})"
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin"):
        (folder / name).write_bytes(bomb)
    for name in ("modeling.py", "config.py", "__init__.py", "sitecustomize.py"):
        (folder / name).write_text(code)
    load_model(folder)
    (folder / WEIGHTS).write_bytes(bomb)
    with pytest.raises(DataError):
        load_model(folder)
    (folder / WEIGHTS).unlink()
    with pytest.raises(DataError):
        load_model(folder)
    assert not boom.exists()
    pickle.loads(bomb)  # would have created the folder
    assert boom.exists()


class TestLoadingErrors:
    def test_a_missing_folder_is_named(self, tmp_path):
        with pytest.raises(DataError, match=mentions(tmp_path / "nowhere")):
            load_model(tmp_path / "nowhere")

    def test_missing_weights_are_named(self, folder):
        (folder / WEIGHTS).unlink()
        with pytest.raises(DataError, match=mentions(folder / WEIGHTS)):
            load_model(folder)

    @pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 100])
    def test_corrupt_weights_are_named(self, folder, content):
        (folder / WEIGHTS).write_bytes(content)
        with pytest.raises(DataError, match=r"model\.safetensors: ") as got:
            load_model(folder)
        assert got.value.path == folder / WEIGHTS

    def test_truncated_weights_are_named(self, folder):
        content = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(content[:-1])
        with pytest.raises(DataError, match=r"model\.safetensors: "):
            load_model(folder)

    @pytest.mark.parametrize("fault", ["missing", "unexpected", "wrong shape"])
    def test_weights_that_do_not_match_the_model_are_named(self, folder, fault):
        tensors = load_file(folder / WEIGHTS)
        name = "head.layers.4.bias"
        if fault == "missing":
            del tensors[name]
        elif fault == "unexpected":
            name = "extra.weight"
            tensors[name] = torch.zeros(1)
        else:
            tensors[name] = torch.zeros(4)
        save_file(tensors, folder / WEIGHTS)
        with pytest.raises(DataError, match=mentions(folder / WEIGHTS, name)):
            load_model(folder)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "JSON"),
            ("{", "JSON"),
            ("[]", "Perron model"),
            ("{}", "Perron model"),
            ('{"model_type": "bert"}', "Perron model"),
            ('{"format": "perron-2"}', "Perron model"),
            ('{"format_version": 99}', mentions("format 99", "newer version")),
            ('{"format_version": "2"}', mentions("format_version", "'2'")),
            ('{"format_version": 2, "format": "perron-1"}', "json: format "),
            ('{"format": "perron-1"}', "json: model "),
            ('{"format": "perron-1", "model": 3}', "json: model "),
            ('{"format": "perron-1", "model": {}}', r"model\.settings"),
        ],
    )
    def test_invalid_configurations_are_named(self, folder, content, message):
        (folder / CONFIG).write_text(content)
        with pytest.raises(DataError, match=message) as got:
            load_model(folder)
        assert got.value.path == folder / CONFIG

    def test_a_configuration_that_is_not_utf_8_is_named(self, folder):
        (folder / CONFIG).write_bytes(b"\xff\xfe\xfa")
        with pytest.raises(DataError, match=mentions(folder / CONFIG, "JSON")):
            load_model(folder)

    def test_an_unknown_key_of_the_file_is_named(self, folder):
        change_config(folder, lambda content: content.update(auto_map="x.py"))
        with pytest.raises(DataError, match=mentions(folder / CONFIG, "auto_map")):
            load_model(folder)

    @pytest.mark.parametrize("level", ["model", "settings", "aggregator"])
    def test_an_unknown_key_of_the_model_is_named(self, folder, level):
        def change(content):
            inner = content["model"]
            levels = {
                "model": inner,
                "settings": inner["settings"],
                "aggregator": inner["settings"]["aggregator"],
            }
            levels[level]["color"] = "red"

        change_config(folder, change)
        with pytest.raises(DataError, match=rf"{level}.*color"):
            load_model(folder)

    def test_a_wrong_vocabulary_size_is_an_error(self, folder):
        def change(content):
            content["model"]["vocab_size"] = VOCAB_SIZE + 1

        change_config(folder, change)
        with pytest.raises(DataError, match=mentions(folder / WEIGHTS, "config.json")):
            load_model(folder)

    def test_a_model_of_another_kind_is_an_error(self, tmp_path):
        small_model("pair").save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=mentions("kind", "'text'", "'pair'")):
            TextClassifier.from_pretrained(tmp_path)


class TestFailedWrites:
    def test_a_failed_write_keeps_the_previous_files(self, folder, monkeypatch):
        before = {path.name: path.read_bytes() for path in folder.iterdir()}

        def fail(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(DataError, match="No space left"):
            small_model("pair").save_pretrained(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    def test_a_failed_first_write_leaves_no_model(self, tmp_path, monkeypatch):
        calls = []
        sync = os.fsync

        def fail_second(file):
            calls.append(file)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            sync(file)

        monkeypatch.setattr(os, "fsync", fail_second)
        with pytest.raises(DataError, match=mentions(tmp_path / CONFIG)):
            small_model("text").save_pretrained(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [WEIGHTS]
        with pytest.raises(DataError, match=mentions(tmp_path, "config.json")):
            load_model(tmp_path)

    def test_a_file_in_place_of_the_folder_is_named(self, tmp_path):
        (tmp_path / "model").write_text("")
        with pytest.raises(DataError, match=mentions(tmp_path / "model")):
            small_model("text").save_pretrained(tmp_path / "model")
