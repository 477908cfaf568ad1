import json
import sys

import pytest
from perron_tests.errors import assert_mentions


@pytest.mark.parametrize("format", ["onnx", "torch-export"])
def test_export_writes_next_to_the_model_and_lists_the_files(perron, model, format):
    outcome = perron("export", model, "--format", format)
    assert outcome.status == 0, outcome.err
    folder = model / format
    description = json.loads((folder / "export.json").read_text())
    for name in (description["file"], "tokenizer.json", "export.json"):
        assert str(folder / name) in outcome.out
        assert (folder / name).stat().st_size > 0
    assert "largest difference" in outcome.out

    again = perron("export", model, "--format", format)
    assert again.status == 1
    assert_mentions(again.err, folder, "--force")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--format=tflite"], ["--format", "tflite", "onnx", "torch-export"]),
        (["--opset=3"], ["--opset", 3, 18, 23]),
        (["--format=torch-export", "--opset=20"], ["--opset", "--format onnx"]),
    ],
)
def test_invalid_usage_is_reported(perron, model, tmp_path, options, parts):
    outcome = perron("export", model, "--out", tmp_path / "new", *options)
    assert outcome.status == 2
    assert_mentions(outcome.err, *parts)
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_model_is_an_error(perron, tmp_path):
    outcome = perron("export", tmp_path, "--out", tmp_path / "new")
    assert outcome.status == 1
    assert_mentions(outcome.err, tmp_path, "config.json")


def test_a_missing_extra_is_reported(perron, model, monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith("perron.integrations")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    outcome = perron("export", model)
    assert outcome.status == 2
    assert_mentions(outcome.err, "onnxscript", "pip install 'perron[export]'")
