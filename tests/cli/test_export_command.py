import json
import sys

import pytest
from perron_tests.errors import assert_mentions


@pytest.mark.parametrize("format", ["onnx", "torch-export"])
def test_export_writes_beside_the_model_and_says_what(perron, model, format):
    told = perron("export", model, "--format", format)
    assert told.status == 0, told.err
    folder = model / format
    described = json.loads((folder / "export.json").read_text())
    for name in (described["file"], "tokenizer.json", "export.json"):
        assert str(folder / name) in told.out
        assert (folder / name).stat().st_size > 0
    assert "differ" in told.out

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
def test_misuse_is_said(perron, model, tmp_path, options, parts):
    told = perron("export", model, "--out", tmp_path / "new", *options)
    assert told.status == 2
    assert_mentions(told.err, *parts)
    assert not (tmp_path / "new").exists()


def test_what_is_no_model_is_said(perron, tmp_path):
    told = perron("export", tmp_path, "--out", tmp_path / "new")
    assert told.status == 1
    assert_mentions(told.err, tmp_path, "config.json")


def test_a_missing_extra_is_said(perron, model, monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith("perron.integrations")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    told = perron("export", model)
    assert told.status == 2
    assert_mentions(told.err, "onnxscript", "pip install 'perron[export]'")
