"""Files that earlier versions wrote are still read, and give the same results.

What the files are, and why they are never regenerated, is in earlier_formats/README.md.
Only public entry points are used here: files outlive the modules that wrote them.
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
    found = sorted(path.stem for path in (VERSION_1 / folder).glob(pattern))
    assert found, f"no {pattern} in {folder}"
    return found


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes())


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def assert_same_answers(folder: Path, expected: dict[str, Any]) -> None:
    """Check what a saved model says of texts."""
    pipeline = perron.load(folder)
    texts, pairs = expected["texts"], expected["pairs"]
    assert list(pipeline.labels) == expected["labels"]
    assert_close(pipeline.predict_proba(texts, pairs), expected["probabilities"])
    assert_close(pipeline.encode(texts), expected["vectors"])


def assert_same_run(folder: Path, expected: dict[str, Any]) -> None:
    """Check the metrics, test predictions and model of a finished run."""
    found = read_metrics(folder)
    assert len(found) == len(expected["metrics"])
    for record, values in zip(found, expected["metrics"], strict=True):
        wanted = {RENAMED.get(name, name): value for name, value in values.items()}
        common = {name: record[name] for name in wanted}
        assert common == pytest.approx(wanted, rel=0, abs=TOLERANCE)
    result = read(folder / "result.json")
    assert result["best_epoch"] == expected["best_epoch"]
    assert result["parameters"] == expected["parameters"]
    with np.load(folder / "test_predictions.npz") as kept:
        found = {name: kept[name].tolist() for name in kept.files}
    assert found == expected["test_predictions"]
    assert_same_answers(folder, expected["model"])


def skip_if_random_numbers_differ() -> None:
    expected = read(VERSION_1 / "random_numbers.json")
    torch.manual_seed(0)
    found = {
        "uniform": torch.rand(8),
        "normal": torch.randn(24),
        "dropout": torch.dropout(torch.ones(64), 0.5, train=True),
    }
    for name, numbers in found.items():
        if not np.allclose(numbers.numpy(), expected[name], atol=1e-6):
            pytest.skip(f"torch draws other random numbers ({name}) on this platform")


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")  # otherwise the command sets it
    monkeypatch.delenv("PERRON_DATA", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for models this small, two threads only wait
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Return a copy of all files; its folder is the working directory."""
    copy = tmp_path / "version_1"
    shutil.copytree(VERSION_1, copy)
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def command(monkeypatch, capsys):
    """Return a function that runs ``python -m perron`` and returns what it prints."""

    def run(*arguments: object, status: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["perron", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("perron", run_name="__main__")
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == status, printed.err
        return printed.out + printed.err

    return run


@pytest.mark.parametrize("name", names("models"))
def test_a_model_gives_the_same_answers(name):
    folder = VERSION_1 / "models" / name
    assert_same_answers(folder, read(folder.with_suffix(".json")))


@pytest.mark.parametrize("name", names("models"))
def test_a_model_that_is_saved_again_gives_the_same_answers(name, tmp_path):
    folder = VERSION_1 / "models" / name
    perron.load(folder).save_pretrained(tmp_path / name)
    assert_same_answers(tmp_path / name, read(folder.with_suffix(".json")))


def test_one_changed_weight_is_noticed(files):
    weights = files / "models" / "text" / "model.safetensors"
    tensors = load_file(weights)
    chosen = next(name for name in tensors if name.startswith("encoder."))
    tensors[chosen].view(-1)[0] += 0.01
    save_file(tensors, weights)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same_answers(weights.parent, read(files / "models" / "text.json"))


def test_a_pickled_classifier_gives_the_same_answers():
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
def test_an_interrupted_run_resumes_to_the_result_of_a_whole_one(name, files, command):
    if name == "averaged":  # has dropout
        skip_if_random_numbers_differ()
    folder = files / "interrupted" / name
    begun = (folder / "metrics.jsonl").read_text()
    command("train", "--resume", "--out", folder, "--quiet")
    assert (folder / "metrics.jsonl").read_text().startswith(begun)  # not trained again
    assert_same_run(folder, read(folder.with_suffix(".json")))


@pytest.mark.parametrize("name", names("interrupted"))
def test_an_interrupted_run_is_finished_with_its_best_epoch(name, files, command):
    folder = files / "interrupted" / name
    begun = (folder / "metrics.jsonl").read_bytes()
    command("finish", folder, "--quiet")
    assert (folder / "metrics.jsonl").read_bytes() == begun
    result, records = read(folder / "result.json"), read_metrics(folder)
    best = records[result["best_epoch"]]
    assert best["is_best"]
    assert result["dev"]["accuracy"] == best["dev_accuracy"]
    assert result["epochs"] == len(records)
    assert perron.load(folder).predict(["a fine film"])


def test_a_finished_run_is_left_as_it_is(files, command):
    folder = files / "finished" / "run"
    metrics = (folder / "metrics.jsonl").read_bytes()
    printed = command("train", "--resume", "--out", folder)
    assert "best epoch 3 of 3" in printed
    assert "92.86 %" in printed
    assert "71.43 %" in printed
    assert (folder / "metrics.jsonl").read_bytes() == metrics
    assert_same_run(folder, read(folder.with_suffix(".json")))


def test_a_finished_run_is_evaluated_on_its_test_data(files, command):
    assert "71.43 %" in command("evaluate", files / "finished" / "run")


@pytest.mark.parametrize("name", names("graphs"))
def test_a_graph_record_holds_what_it_held(name):
    content = (VERSION_1 / "graphs" / f"{name}.json").read_bytes()
    raw, record = json.loads(content), Explanation.from_json(content)
    assert (record.text, record.pair) == (raw["text"], raw["pair"])
    assert record.label == raw["label"]
    assert record.probabilities == raw["probabilities"]
    held = [*raw["words"], *([raw["sentences"]] if raw["sentences"] else [])]
    for graph, expected in zip(record.graphs, held, strict=True):
        assert graph.nodes == expected["nodes"]
        assert graph.weights == expected["weights"]
        assert graph.truncated == expected["cut"]
        edges = [head["edges"] for head in expected["heads"]]
        assert [head.edges for head in graph.heads] == edges
    assert Explanation.from_json(record.to_json()) == record


@pytest.mark.parametrize("name", names("graphs"))
def test_a_graph_record_is_rendered(name):
    record = Explanation.from_json((VERSION_1 / "graphs" / f"{name}.json").read_bytes())
    printed = StringIO()
    Console(file=printed, width=200).print(terminal_view(record))
    terminal, page = printed.getvalue(), record.to_html()
    picture = re.sub("<[^>]*>", " ", record.to_svg())
    for graph in record.words:
        for word in graph.nodes:
            assert word in terminal
            assert word in picture
            assert json.dumps(word) in page
    if record.has_edges:
        assert record.to_networkx().number_of_edges() > 0


@pytest.mark.parametrize("name", names("graphs"))
def test_a_model_still_gives_the_graph_that_it_gave(name):
    record = Explanation.from_json((VERSION_1 / "graphs" / f"{name}.json").read_bytes())
    found = perron.load(VERSION_1 / "models" / name).explain(record.text, record.pair)
    assert found.model == record.model
    for graph, expected in zip(found.graphs, record.graphs, strict=True):
        assert graph.nodes == expected.nodes
        if expected.weights is not None:
            assert_close(graph.weights, expected.weights)
        if expected.has_edges:
            assert_close(graph.edges(), expected.edges())


def table(path: Path) -> dict[str, dict[str, float]]:
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
    found: dict[str, dict[str, float]], expected: dict[str, dict[str, float]]
) -> None:
    """Check all that was in a table; version 1 estimated p from random draws."""
    assert list(found) == list(expected)
    for name, row in expected.items():
        own = {column: found[name].get(column) for column in row}
        close = {key: pytest.approx(value, abs=0.001) for key, value in row.items()}
        if "p" in row:
            close["p"] = pytest.approx(row["p"], abs=0.02)
        assert own == close, name


def traces(folder: Path) -> dict[str, bytes]:
    """Return the metrics of all runs, which hold times: no other run has the same."""
    return {
        path.parent.name: path.read_bytes() for path in folder.glob("*/metrics.jsonl")
    }


@pytest.mark.parametrize("left", ["everything", "records.jsonl", "folders of runs"])
def test_a_finished_study_is_not_run_again(left, files, command, monkeypatch):
    runs = files / "study" / "runs"
    expected = table(runs / "study.md")
    assert list(expected) == ["centrality", "mean"]
    (runs / "study.md").unlink()
    if left == "records.jsonl":
        for folder in runs.glob("*/"):
            shutil.rmtree(folder)
    elif left == "folders of runs":
        (runs / "records.jsonl").unlink()
    before = traces(runs)
    monkeypatch.chdir(files / "study")
    printed = command("study", "study.toml", "--out", "runs")
    assert "two poolings" in printed
    assert "perron train" not in printed
    assert traces(runs) == before
    assert_same_table(table(runs / "study.md"), expected)
    assert len((runs / "records.jsonl").read_text().splitlines()) == 6


def test_a_run_that_a_study_lacks_is_noticed(files, command, monkeypatch):
    runs = files / "study" / "runs"
    lines = (runs / "records.jsonl").read_text().splitlines(keepends=True)
    (runs / "records.jsonl").write_text("".join(lines[:-1]))
    shutil.rmtree(runs / "mean-point0-seed1")
    monkeypatch.chdir(files / "study")
    printed = command("study", "study.toml", "--out", "runs")
    assert printed.count("perron train") == 1
    found, expected = table(runs / "study.md"), table(VERSION_1 / "study/runs/study.md")
    assert found["centrality"] == expected["centrality"]


def test_a_finished_comparison_is_not_run_again(files, command, monkeypatch):
    runs = files / "compare" / "runs"
    expected, before = table(runs / "compare.md"), traces(runs)
    assert list(expected) == ["centrality", "self-attention"]
    assert len(before) == 4
    (runs / "compare.md").unlink()
    monkeypatch.chdir(files / "compare")
    options = ["--aggregators", "centrality,self-attention", "--seeds", 2]
    command("compare", "recipe.toml", *options, "--out", "runs")
    assert traces(runs) == before
    assert_same_table(table(runs / "compare.md"), expected)


def test_a_comparison_with_other_settings_is_refused(files, command, monkeypatch):
    monkeypatch.chdir(files / "compare")
    options = ["--aggregators", "centrality,self-attention", "--seeds", 2]
    options += ["--set", "training.max_grad_norm=3", "--out", "runs"]
    printed = command("compare", "recipe.toml", *options, status=2)
    assert "training.max_grad_norm was 5.0, is 3.0" in printed
    before = traces(files / "compare" / "runs")
    command("compare", "recipe.toml", *options[:4], "--out", "runs")
    assert traces(files / "compare" / "runs") == before


@pytest.mark.parametrize("name", names("recipes", "*.toml"))
def test_a_recipe_trains_the_same_model(name, files, command, monkeypatch, tmp_path):
    skip_if_random_numbers_differ()
    monkeypatch.chdir(files / "recipes")
    command("train", f"{name}.toml", "--out", tmp_path / name, "--quiet")
    assert_same_run(tmp_path / name, read(files / "recipes" / f"{name}.json"))


def test_a_classifier_of_transformers_gives_the_same_logits():
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
    # The library asks for this trust wherever a module is not one of its own.
    model = library.SentenceTransformer(
        str(folder), device="cpu", trust_remote_code=True
    )
    assert_close(model.encode(expected["texts"]), expected["vectors"])
