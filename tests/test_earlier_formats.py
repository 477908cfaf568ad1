"""Files written by earlier versions can be read and give the same results.

See earlier_formats/README.md for the files and why they are never regenerated. The
tests use only public entry points, because files outlive the modules that wrote them.
"""

import json
import pickle
import re
import runpy
import shutil
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

import perron
from perron.explain import Explanation
from perron.explain.views import terminal_view
from perron.training.callbacks import read_metrics

VERSION_1 = Path(__file__).with_name("earlier_formats") / "version_1"
TOLERANCE = 1e-5
RENAMED = {"train_loss": "train_log_loss", "dev_loss": "dev_log_loss"}


def names(folder: str, pattern: str = "*.json") -> list[str]:
    stems = sorted(path.stem for path in (VERSION_1 / folder).glob(pattern))
    assert stems, f"no {pattern} in {folder}"
    return stems


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes())


def assert_close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)


def assert_same_predictions(folder: Path, expected: dict[str, Any]) -> None:
    """Check the predictions of a saved model."""
    pipeline = perron.load(folder)
    texts, pairs = expected["texts"], expected["pairs"]
    assert list(pipeline.labels) == expected["labels"]
    assert_close(pipeline.predict_proba(texts, pairs), expected["probabilities"])
    assert_close(pipeline.encode(texts), expected["vectors"])


def assert_same_run(folder: Path, expected: dict[str, Any]) -> None:
    """Check the metrics, test predictions and model of a finished run."""
    records = read_metrics(folder)
    assert len(records) == len(expected["metrics"])
    for record, values in zip(records, expected["metrics"], strict=True):
        want = {RENAMED.get(name, name): value for name, value in values.items()}
        got = {name: record[name] for name in want}
        assert got == pytest.approx(want, rel=0, abs=TOLERANCE)
    result = read(folder / "result.json")
    assert result["best_epoch"] == expected["best_epoch"]
    assert result["parameters"] == expected["parameters"]
    with np.load(folder / "test_predictions.npz") as arrays:
        predictions = {name: arrays[name].tolist() for name in arrays.files}
    assert predictions == expected["test_predictions"]
    assert_same_predictions(folder, expected["model"])


def skip_if_random_numbers_differ() -> None:
    expected = read(VERSION_1 / "random_numbers.json")
    torch.manual_seed(0)
    numbers_by_name = {
        "uniform": torch.rand(8),
        "normal": torch.randn(24),
        "dropout": torch.dropout(torch.ones(64), 0.5, train=True),
    }
    for name, numbers in numbers_by_name.items():
        if not np.allclose(numbers.numpy(), expected[name], atol=1e-6):
            pytest.skip(f"torch has different random numbers ({name}) on this platform")


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")  # or the command would set it
    monkeypatch.delenv("PERRON_DATA", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are too small for two threads
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Return a copy of all files, which is also the working directory."""
    copy = tmp_path / "version_1"
    shutil.copytree(VERSION_1, copy)
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def command(monkeypatch, capsys):
    """Return a function that runs ``python -m perron`` and returns its output."""

    def run(*arguments: object, status: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["perron", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            runpy.run_module("perron", run_name="__main__")
        output = capsys.readouterr()
        assert (caught.value.code or 0) == status, output.err
        return output.out + output.err

    return run


@pytest.mark.parametrize("name", names("models"))
def test_a_model_gives_the_same_predictions(name):
    folder = VERSION_1 / "models" / name
    assert_same_predictions(folder, read(folder.with_suffix(".json")))


@pytest.mark.parametrize("name", names("models"))
def test_a_model_saved_again_gives_the_same_predictions(name, tmp_path):
    folder = VERSION_1 / "models" / name
    perron.load(folder).save_pretrained(tmp_path / name)
    assert_same_predictions(tmp_path / name, read(folder.with_suffix(".json")))


def test_a_changed_weight_is_detected(files):
    weights = files / "models" / "text" / "model.safetensors"
    tensors = load_file(weights)
    name = next(name for name in tensors if name.startswith("encoder."))
    tensors[name].view(-1)[0] += 0.01
    save_file(tensors, weights)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same_predictions(weights.parent, read(files / "models" / "text.json"))


def test_a_pickled_classifier_gives_the_same_predictions():
    expected = read(VERSION_1 / "pickles" / "classifier.json")
    content = (VERSION_1 / "pickles" / "classifier.pickle").read_bytes()
    model = pickle.loads(content)
    assert model.classes_.tolist() == expected["classes"]
    assert model.predict(expected["texts"]).tolist() == expected["labels"]
    assert_close(model.predict_proba(expected["texts"]), expected["probabilities"])


def test_a_pickled_vectorizer_gives_the_same_vectors():
    expected = read(VERSION_1 / "pickles" / "vectorizer.json")
    content = (VERSION_1 / "pickles" / "vectorizer.pickle").read_bytes()
    assert_close(
        pickle.loads(content).transform(expected["texts"]), expected["vectors"]
    )


@pytest.mark.parametrize("name", names("interrupted"))
def test_a_resumed_run_has_the_result_of_an_uninterrupted_one(name, files, command):
    if name == "averaged":  # has dropout
        skip_if_random_numbers_differ()
    folder = files / "interrupted" / name
    metrics_before = (folder / "metrics.jsonl").read_text()
    command("train", "--resume", "--out", folder, "--quiet")
    assert (
        (folder / "metrics.jsonl").read_text().startswith(metrics_before)
    )  # epochs are not repeated
    assert_same_run(folder, read(folder.with_suffix(".json")))


@pytest.mark.parametrize("name", names("interrupted"))
def test_finish_keeps_the_best_epoch_of_an_interrupted_run(name, files, command):
    folder = files / "interrupted" / name
    metrics_before = (folder / "metrics.jsonl").read_bytes()
    command("finish", folder, "--quiet")
    assert (folder / "metrics.jsonl").read_bytes() == metrics_before
    result, records = read(folder / "result.json"), read_metrics(folder)
    best = records[result["best_epoch"]]
    assert best["is_best"]
    assert result["dev"]["accuracy"] == best["dev_accuracy"]
    assert result["epochs"] == len(records)
    assert perron.load(folder).predict(["a fine film"])


def test_a_finished_run_is_not_changed(files, command):
    folder = files / "finished" / "run"
    metrics = (folder / "metrics.jsonl").read_bytes()
    output = command("train", "--resume", "--out", folder)
    assert "best epoch 3 of 3" in output
    assert "92.86 %" in output
    assert "71.43 %" in output
    assert (folder / "metrics.jsonl").read_bytes() == metrics
    assert_same_run(folder, read(folder.with_suffix(".json")))


def test_a_finished_run_can_be_evaluated(files, command):
    assert "71.43 %" in command("evaluate", files / "finished" / "run")


@pytest.mark.parametrize("name", names("graphs"))
def test_a_graph_record_has_the_same_content(name):
    content = (VERSION_1 / "graphs" / f"{name}.json").read_bytes()
    raw, record = json.loads(content), Explanation.from_json(content)
    assert (record.text, record.pair) == (raw["text"], raw["pair"])
    assert record.label == raw["label"]
    assert record.probabilities == raw["probabilities"]
    graphs = [*raw["words"], *([raw["sentences"]] if raw["sentences"] else [])]
    for graph, expected in zip(record.graphs, graphs, strict=True):
        assert graph.nodes == expected["nodes"]
        assert graph.weights == expected["weights"]
        assert graph.truncated == expected["cut"]
        edges = [head["edges"] for head in expected["heads"]]
        assert [head.edges for head in graph.heads] == edges
    assert Explanation.from_json(record.to_json()) == record


@pytest.mark.parametrize("name", names("graphs"))
def test_a_graph_record_can_be_rendered(name):
    record = Explanation.from_json((VERSION_1 / "graphs" / f"{name}.json").read_bytes())
    output = StringIO()
    Console(file=output, width=200).print(terminal_view(record))
    terminal, page = output.getvalue(), record.to_html()
    svg_text = re.sub("<[^>]*>", " ", record.to_svg())
    for graph in record.words:
        for word in graph.nodes:
            assert word in terminal
            assert word in svg_text
            assert json.dumps(word) in page
    if record.has_edges:
        assert record.to_networkx().number_of_edges() > 0


@pytest.mark.parametrize("name", names("graphs"))
def test_a_model_gives_the_same_graph(name):
    record = Explanation.from_json((VERSION_1 / "graphs" / f"{name}.json").read_bytes())
    pipeline = perron.load(VERSION_1 / "models" / name)
    result = pipeline.explain(record.text, record.pair)
    assert result.model == record.model
    for graph, expected in zip(result.graphs, record.graphs, strict=True):
        assert graph.nodes == expected.nodes
        if expected.weights is not None:
            assert_close(graph.weights, expected.weights)
        if expected.has_edges:
            assert_close(graph.edges(), expected.edges())


def read_table(path: Path) -> dict[str, dict[str, float]]:
    """Return the first number of each cell of a Markdown table, by row and column."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("| ")]
    header, _, *rows = (line.strip("| ").split(" | ") for line in lines)
    return {
        name: {
            column: float(number[0])
            for column, cell in zip(header[1:], cells, strict=False)
            if (number := re.search(r"\d+(?:\.\d+)?", cell))
        }
        for name, *cells in rows
    }


def assert_same_table(
    actual: dict[str, dict[str, float]], expected: dict[str, dict[str, float]]
) -> None:
    """Compare the expected columns; p-values of version 1 ignored seeds."""
    assert list(actual) == list(expected)
    for name, row in expected.items():
        got = {column: actual[name].get(column) for column in row}
        close = {key: pytest.approx(value, abs=0.001) for key, value in row.items()}
        if "p" in row:
            close["p"] = pytest.approx(0.5, abs=0.5)
        assert got == close, name


def run_metrics(folder: Path) -> dict[str, bytes]:
    """Return the metrics of all runs, which include times and so identify a run."""
    return {
        path.parent.name: path.read_bytes() for path in folder.glob("*/metrics.jsonl")
    }


@pytest.mark.parametrize("kept", ["everything", "records.jsonl", "folders of runs"])
def test_a_finished_study_is_not_run_again(kept, files, command, monkeypatch):
    runs = files / "study" / "runs"
    expected = read_table(runs / "study.md")
    assert list(expected) == ["centrality", "mean"]
    (runs / "study.md").unlink()
    if kept == "records.jsonl":
        for folder in runs.glob("*/"):
            shutil.rmtree(folder)
    elif kept == "folders of runs":
        (runs / "records.jsonl").unlink()
    before = run_metrics(runs)
    monkeypatch.chdir(files / "study")
    output = command("study", "study.toml", "--out", "runs")
    assert "two poolings" in output
    assert "perron train" not in output
    assert run_metrics(runs) == before
    assert_same_table(read_table(runs / "study.md"), expected)
    assert len((runs / "records.jsonl").read_text().splitlines()) == 6


def test_a_missing_run_of_a_study_is_run_again(files, command, monkeypatch):
    runs = files / "study" / "runs"
    lines = (runs / "records.jsonl").read_text().splitlines(keepends=True)
    (runs / "records.jsonl").write_text("".join(lines[:-1]))
    shutil.rmtree(runs / "mean-point0-seed1")
    monkeypatch.chdir(files / "study")
    output = command("study", "study.toml", "--out", "runs")
    assert output.count("perron train") == 1
    actual = read_table(runs / "study.md")
    expected = read_table(VERSION_1 / "study/runs/study.md")
    assert actual["centrality"] == expected["centrality"]


def test_a_finished_comparison_is_not_run_again(files, command, monkeypatch):
    runs = files / "compare" / "runs"
    expected, before = read_table(runs / "compare.md"), run_metrics(runs)
    assert list(expected) == ["centrality", "self-attention"]
    assert len(before) == 4
    (runs / "compare.md").unlink()
    monkeypatch.chdir(files / "compare")
    options = ["--aggregators", "centrality,self-attention", "--seeds", 2]
    command("compare", "recipe.toml", *options, "--out", "runs")
    assert run_metrics(runs) == before
    assert_same_table(read_table(runs / "compare.md"), expected)


def test_a_comparison_with_other_settings_is_an_error(files, command, monkeypatch):
    monkeypatch.chdir(files / "compare")
    options = ["--aggregators", "centrality,self-attention", "--seeds", 2]
    options += ["--set", "training.max_grad_norm=3", "--out", "runs"]
    output = command("compare", "recipe.toml", *options, status=2)
    assert "training.max_grad_norm was 5.0, is 3.0" in output
    before = run_metrics(files / "compare" / "runs")
    command("compare", "recipe.toml", *options[:4], "--out", "runs")
    assert run_metrics(files / "compare" / "runs") == before


@pytest.mark.parametrize("name", names("recipes", "*.toml"))
def test_a_recipe_trains_the_same_model(name, files, command, monkeypatch, tmp_path):
    skip_if_random_numbers_differ()
    monkeypatch.chdir(files / "recipes")
    command("train", f"{name}.toml", "--out", tmp_path / name, "--quiet")
    assert_same_run(tmp_path / name, read(files / "recipes" / f"{name}.json"))


def test_a_transformers_classifier_gives_the_same_logits():
    hugging_face = pytest.importorskip("perron.integrations.hugging_face")
    folder = VERSION_1 / "integrations" / "transformers"
    expected = read(folder.with_suffix(".json"))
    kind = hugging_face.CentralityForSequenceClassification
    model = kind.from_pretrained(folder).eval()
    tokens = [torch.tensor(expected[key]) for key in ("input_ids", "attention_mask")]
    with torch.inference_mode():
        assert_close(model(*tokens).logits, expected["logits"])


@pytest.mark.parametrize("name", names("integrations", "sentence_transformers*.json"))
def test_a_sentence_transformer_gives_the_same_vectors(name):
    library = pytest.importorskip("sentence_transformers")
    folder = VERSION_1 / "integrations" / name
    expected = read(folder.with_suffix(".json"))
    # The library requires trust_remote_code for modules from other packages.
    model = library.SentenceTransformer(
        str(folder), device="cpu", trust_remote_code=True
    )
    assert_close(model.encode(expected["texts"]), expected["vectors"])
