"""ONNX export: the same outputs, dynamic axes, and errors."""

import json

import numpy as np
import onnx
import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.exports import onnx_difference, run_folder
from perron_tests.models import AGGREGATORS, ENCODERS, KINDS, small_model
from perron_tests.pipelines import OTHERS, TEXTS, small_pipeline

from perron import PowerIteration
from perron.errors import DataError
from perron.integrations.export import export_onnx, export_torch, operators, write

# ALL is for the slow tests.
QUICK = [
    ("document", "centrality", "bilstm"),
]
ALL = [(kind, name, "bilstm") for kind in KINDS for name in AGGREGATORS]
ALL += [(kind, "centrality", name) for kind in KINDS for name in ENCODERS]


@pytest.fixture(scope="module")
def pipeline():
    pipeline = small_pipeline("text")
    pipeline.model.set_temperature(2.0)  # exports include it
    return pipeline


@pytest.fixture(scope="module")
def folder(pipeline, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "text"
    export_onnx(pipeline, folder)
    return folder


def test_texts_get_the_same_probabilities_without_perron(pipeline, folder):
    actual = run_folder(folder, TEXTS)["probabilities"]
    np.testing.assert_allclose(actual, pipeline.predict_proba(TEXTS), atol=1e-6)


@pytest.mark.parametrize("text", ["", "bad", "the film was good"])
def test_a_text_has_the_same_outputs_alone_and_in_a_batch(folder, text):
    alone, batch = run_folder(folder, [text]), run_folder(folder, [text, *TEXTS])
    for name in alone:
        width = alone[name].shape[1]
        np.testing.assert_allclose(alone[name], batch[name][:1, :width], atol=1e-6)


def test_weights_sum_to_one_or_are_zero_for_an_empty_text(pipeline, folder):
    weights = run_folder(folder, TEXTS)["weights"]
    words = [len(row["ids"]) for row in pipeline.processor.encode(TEXTS)]
    expected = [float(count > 0) for count in words]
    np.testing.assert_allclose(weights.sum(1), expected, atol=1e-6)
    np.testing.assert_array_equal((weights > 0).sum(1), words)


def test_the_graph_has_dynamic_axes_and_standard_operators(folder):
    graph = onnx.load(folder / "model.onnx").graph
    axes = [
        [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
        for i in graph.input
    ]
    assert axes == [["batch", "words"], ["batch"]]
    operators = [node.op_type for node in graph.node]
    assert operators.count("LSTM") == 2
    assert operators.count("Loop") == 2
    assert all(node.domain == "" for node in graph.node)


def test_the_description_lists_inputs_and_outputs(folder):
    description = json.loads((folder / "export.json").read_text())
    assert description["format"] == "perron-export-1"
    assert description["labels"] == ["bad", "fair", "good"]
    assert description["inputs"] == {
        "ids": "int64[batch, words]",
        "lengths": "int64[batch]",
    }
    assert description["outputs"]["weights"] == "float32[batch, words]"
    assert description["largest_difference"] < 1e-6
    assert not list(folder.parent.glob(".*"))


@pytest.mark.parametrize(("kind", "aggregator", "encoder"), QUICK)
def test_exported_documents_match_the_model(kind, aggregator, encoder, tmp_path):
    assert onnx_difference(tmp_path, kind, aggregator, encoder) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "aggregator", "encoder"), ALL)
def test_every_exported_model_matches(kind, aggregator, encoder, tmp_path):
    assert onnx_difference(tmp_path, kind, aggregator, encoder) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_exported_programs_match(kind, tmp_path):
    for name in AGGREGATORS:
        result = export_torch(small_model(kind, name, "bilstm"), tmp_path / name)
        assert result.max_abs_difference < 1e-6


def test_pairs_get_the_same_probabilities_without_perron(tmp_path):
    pipeline = small_pipeline("pair", "mean", "none")
    export_onnx(pipeline, tmp_path / "pair")
    actual = run_folder(tmp_path / "pair", TEXTS, OTHERS)["probabilities"]
    expected = pipeline.predict_proba(TEXTS, OTHERS)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_an_exported_program_accepts_any_length(pipeline, tmp_path):
    export_torch(pipeline, tmp_path / "program")
    program = torch.export.load(tmp_path / "program" / "model.pt2").module()
    ids = torch.tensor([row["ids"] for row in pipeline.processor.encode(["bad"])])
    actual = program(ids=ids, lengths=torch.tensor([1]))["probabilities"]
    np.testing.assert_allclose(actual, pipeline.predict_proba(["bad"]), atol=1e-6)


def test_an_export_that_differs_is_not_written(tmp_path, monkeypatch):
    wrong = operators._STATIONARY.replace("Div (into, divisor)", "Mul (into, divisor)")
    monkeypatch.setattr(operators, "_STATIONARY", wrong)
    with pytest.raises(DataError, match=r"differ.*\de[-+]\d\d"):
        export_onnx(small_model("text", "centrality", "none"), tmp_path / "wrong")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_empty_is_refused_unless_replaced(tmp_path, monkeypatch):
    (tmp_path / "export.json").write_text("old")
    (tmp_path / "mine.txt").write_text("mine")
    model = small_model("text", "mean", "none")
    with pytest.raises(DataError, match=mentions(tmp_path, "replace=True", "--force")):
        export_onnx(model, tmp_path)
    assert (tmp_path / "export.json").read_text() == "old"

    # Writing itself is tested above.
    monkeypatch.setattr(write, "_save", lambda save, module, path: path.touch() or {})
    monkeypatch.setattr(write, "onnx_runner", lambda path: None)
    monkeypatch.setattr(write, "max_abs_difference", lambda module, run: 0.0)
    result = export_onnx(model, tmp_path, replace=True)
    assert [path.name for path in result.files] == ["model.onnx", "export.json"]
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_unsupported_options_are_refused(tmp_path):
    model = small_model("text", "centrality", "none")
    with pytest.raises(ValueError, match=mentions("opset", 18, 23, 7)):
        export_onnx(model, tmp_path / "a", opset=7)
    model.aggregator.solver = PowerIteration()
    with pytest.raises(
        ValueError, match=mentions("solver", "'direct'", "power iterations")
    ):
        export_onnx(model, tmp_path / "a")
    assert not list(tmp_path.iterdir())
