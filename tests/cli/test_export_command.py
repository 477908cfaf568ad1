import json
import sys

import pytest


@pytest.mark.parametrize("format", ["onnx", "torch-export"])
def test_export_writes_beside_the_model_and_says_what(perron, model, format):
    told = perron("export", model, "--format", format)
    assert told.status == 0, told.err
    folder = model / format
    described = json.loads((folder / "export.json").read_text())
    for name in (described["file"], "tokenizer.json", "export.json"):
        assert str(folder / name) in told.out
        assert (folder / name).stat().st_size > 0
    assert "differ from the model's by" in told.out

    again = perron("export", model, "--format", format)
    assert again.status == 1
    assert "has something in it" in again.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--format=tflite"], "--format tflite: is none of onnx, torch-export"),
        (["--opset=3"], "--opset 3: is not from 18 to 23"),
        (["--format=torch-export", "--opset=20"], "--opset: is for --format onnx"),
    ],
)
def test_misuse_is_said(perron, model, tmp_path, options, problem):
    told = perron("export", model, "--out", tmp_path / "new", *options)
    assert told.status == 2
    assert problem in told.err
    assert not (tmp_path / "new").exists()


def test_what_is_no_model_is_said(perron, tmp_path):
    told = perron("export", tmp_path, "--out", tmp_path / "new")
    assert told.status == 1
    assert "no config.json in it" in told.err


def test_a_missing_extra_is_said(perron, model, monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith("perron.integrations")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    told = perron("export", model)
    assert told.status == 2
    assert "needs onnxscript: pip install 'perron[export]'" in told.err
