"""Custom components, each in a separate file outside the package (tests/extensions).

These tests follow the steps in CONTRIBUTING, in processes that find the components only
through PERRON_PLUGINS or --plugin.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from perron_tests import HELPERS
from perron_tests.training import tiny_table, write_texts

EXTENSIONS = Path(__file__).with_name("extensions")
NORM = {"name": "norm", "temperature": 0.5}
COSINE = {
    "name": "centrality",
    "hidden_dim": 4,
    "connectivity": {"name": "cosine", "gain": 3.0},
}
TEXTS = ["a fine film", "some dull day"]


def run(*words, plugins=(), cwd):
    """Run a Python module with the extensions on its path."""
    path = [str(EXTENSIONS), str(HELPERS), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PERRON_PLUGINS": ",".join(plugins),
        "COLUMNS": "200",
    }
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=cwd,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two recipes and texts in the format .bar."""
    folder = tmp_path_factory.mktemp("extending")
    rows = write_texts(folder / "texts.csv").read_text().splitlines()[1:]
    pairs = [row.rsplit(",", 1) for row in rows]
    bars = "".join(f"{label} | {text}\n" for text, label in pairs)
    (folder / "texts.bar").write_text(bars)
    for name, aggregator in (("norm", NORM), ("cosine", COSINE)):
        table = tiny_table(folder / "texts.csv")
        table["model"]["aggregator"] = aggregator
        if name == "norm":
            table["data"] = {"format": "bar", "train": str(folder / "texts.bar")}
        (folder / f"{name}.toml").write_text(tomli_w.dumps(table))
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    """Train both recipes, one with PERRON_PLUGINS and one with --plugin."""
    plugins = ("norm_pool", "bar_format", "balanced_accuracy")
    train = ("train", "norm.toml", "--out", "norm", "--quiet")
    runs = [
        run("perron", *train, plugins=plugins, cwd=folder),
        run(
            *("perron", "--plugin", "cosine_connectivity"),
            *("train", "cosine.toml", "--out", "cosine", "--quiet"),
            cwd=folder,
        ),
    ]
    for result in runs:
        assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(
    scope="module", params=[("norm", "norm_pool"), ("cosine", "cosine_connectivity")]
)
def usage(request, trained):
    """Use a model in a new process in every way and return the results."""
    name, module = request.param
    settings = json.dumps({"norm": NORM, "cosine": COSINE}[name])
    script = "perron_tests.use_extensions"
    result = run(script, name, settings, plugins=[module], cwd=trained)
    assert result.returncode == 0, result.stderr
    return name, json.loads(result.stdout.splitlines()[-1])


class TestAggregatorAndConnectivity:
    def test_their_options_come_from_the_recipe(self, usage):
        name, results = usage
        expected = {"norm": NORM, "cosine": COSINE}[name]
        assert expected.items() <= results["aggregator"].items()

    def test_a_new_process_can_predict(self, usage):
        _, results = usage
        assert results["predicted"] == ["good", "bad"]

    def test_a_new_process_can_explain(self, usage):
        name, results = usage
        assert sum(results["weights"]) == pytest.approx(1, abs=1e-5)
        assert results["has_edges"] == (name == "cosine")
        assert results["explained"] == 200

    def test_the_server_predicts_the_same_labels(self, usage):
        _, results = usage
        labels = [row["label"] for row in results["served"]["predictions"]]
        assert labels == results["predicted"]

    def test_the_exported_model_gives_the_same_probabilities(self, usage):
        _, results = usage
        for exported, original in zip(
            results["exported"], results["probabilities"], strict=True
        ):
            assert exported == pytest.approx(original, abs=1e-5)

    def test_scikit_learn_accepts_their_names(self, usage):
        _, results = usage
        assert results["fitted"] == ["good", "bad"]
        assert results["unpickled"]


class TestFormat:
    def test_the_format_is_recognized_by_its_extension(self, trained):
        words = (
            "perron",
            "predict",
            "norm",
            "--file",
            "texts.bar",
            "--format",
            "jsonl",
        )
        result = run(*words, plugins=["norm_pool", "bar_format"], cwd=trained)
        assert result.returncode == 0, result.stderr
        labels = [json.loads(line)["label"] for line in result.stdout.splitlines()]
        lines = (trained / "texts.bar").read_text().splitlines()
        truth = [line.partition(" | ")[0] for line in lines]
        assert labels == truth

    def test_a_file_in_the_format_can_be_evaluated(self, trained):
        words = ("perron", "evaluate", "norm", "--data", "texts.bar")
        plugins = ["norm_pool", "bar_format", "balanced_accuracy"]
        result = run(*words, plugins=plugins, cwd=trained)
        assert result.returncode == 0, result.stderr
        assert "balanced accuracy" in result.stdout + result.stderr

    def test_an_invalid_line_is_named(self, trained):
        (trained / "bad.bar").write_text("good | fine\nno bar here\nbad | dull\n")
        words = ("perron", "data", "stats", "--data", "bad.bar")
        result = run(*words, plugins=["bar_format"], cwd=trained)
        assert result.returncode == 1
        assert "bad.bar, line 2" in result.stderr


class TestMetric:
    def test_the_metric_is_in_every_file_of_the_run(self, trained):
        run_folder = trained / "norm"
        line = (run_folder / "metrics.jsonl").read_text().splitlines()[0]
        assert "dev_balanced_accuracy" in json.loads(line)
        result = json.loads((run_folder / "result.json").read_text())
        assert "balanced_accuracy" in result["dev"]
        assert "balanced accuracy" in (run_folder / "README.md").read_text()


class TestWithoutThePlugin:
    def test_a_model_with_an_unknown_component_names_the_option(self, trained):
        result = run("perron", "predict", "norm", "fine", cwd=trained)
        assert result.returncode in (1, 2)
        assert "norm" in result.stderr
        assert "--plugin" in result.stderr
        assert "Traceback" not in result.stderr

    def test_a_missing_module_is_named(self, trained):
        words = ("perron", "--plugin", "no_such_module", "info")
        result = run(*words, cwd=trained)
        assert result.returncode == 2
        assert "no_such_module" in result.stderr
        assert "Traceback" not in result.stderr
