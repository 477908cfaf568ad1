"""Parts of one's own, each in one file outside the package (tests/extensions).

CONTRIBUTING says how to write them. These are the steps it names, in processes that
know the parts by nothing but PERRON_PLUGINS or --plugin.
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
    """Run Python, with the extensions on its path but not known to Perron."""
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
    """Two recipes, and texts in the format .bar."""
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
    """Train both recipes, with the modules named in the two ways there are."""
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
    for ended in runs:
        assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(
    scope="module", params=[("norm", "norm_pool"), ("cosine", "cosine_connectivity")]
)
def used(request, trained):
    """Load a model in a new process and use it in every way."""
    name, module = request.param
    settings = json.dumps({"norm": NORM, "cosine": COSINE}[name])
    script = "perron_tests.use_extensions"
    ended = run(script, name, settings, plugins=[module], cwd=trained)
    assert ended.returncode == 0, ended.stderr
    return name, json.loads(ended.stdout.splitlines()[-1])


class TestAggregatorAndConnectivity:
    def test_their_options_come_from_the_recipe(self, used):
        name, found = used
        wanted = {"norm": NORM, "cosine": COSINE}[name]
        assert wanted.items() <= found["aggregator"].items()

    def test_a_new_process_predicts(self, used):
        _, found = used
        assert found["predicted"] == ["good", "bad"]

    def test_a_new_process_explains(self, used):
        name, found = used
        assert sum(found["weights"]) == pytest.approx(1, abs=1e-5)
        assert found["has_edges"] == (name == "cosine")
        assert found["explained"] == 200

    def test_the_server_answers(self, used):
        _, found = used
        labels = [row["label"] for row in found["served"]["predictions"]]
        assert labels == found["predicted"]

    def test_the_exported_model_agrees(self, used):
        _, found = used
        for exported, own in zip(
            found["exported"], found["probabilities"], strict=True
        ):
            assert exported == pytest.approx(own, abs=1e-5)

    def test_scikit_learn_takes_them_by_name(self, used):
        _, found = used
        assert found["fitted"] == ["good", "bad"]
        assert found["unpickled"]


class TestFormat:
    def test_it_trains_and_is_known_by_its_extension(self, trained):
        words = (
            "perron",
            "predict",
            "norm",
            "--file",
            "texts.bar",
            "--format",
            "jsonl",
        )
        ended = run(*words, plugins=["norm_pool", "bar_format"], cwd=trained)
        assert ended.returncode == 0, ended.stderr
        labels = [json.loads(line)["label"] for line in ended.stdout.splitlines()]
        lines = (trained / "texts.bar").read_text().splitlines()
        truth = [line.partition(" | ")[0] for line in lines]
        assert labels == truth

    def test_it_evaluates(self, trained):
        words = ("perron", "evaluate", "norm", "--data", "texts.bar")
        plugins = ["norm_pool", "bar_format", "balanced_accuracy"]
        ended = run(*words, plugins=plugins, cwd=trained)
        assert ended.returncode == 0, ended.stderr
        assert "balanced accuracy" in ended.stdout + ended.stderr

    def test_a_bad_line_is_named(self, trained):
        (trained / "bad.bar").write_text("good | fine\nno bar here\nbad | dull\n")
        words = ("perron", "data", "stats", "--data", "bad.bar")
        ended = run(*words, plugins=["bar_format"], cwd=trained)
        assert ended.returncode == 1
        assert "bad.bar, line 2" in ended.stderr


class TestMetric:
    def test_it_is_in_every_file_of_the_run(self, trained):
        run_folder = trained / "norm"
        line = (run_folder / "metrics.jsonl").read_text().splitlines()[0]
        assert "dev_balanced_accuracy" in json.loads(line)
        result = json.loads((run_folder / "result.json").read_text())
        assert "balanced_accuracy" in result["dev"]
        assert "balanced accuracy" in (run_folder / "README.md").read_text()


class TestWithoutThePlugin:
    def test_a_model_folder_imports_nothing_and_says_what_is_missing(self, trained):
        ended = run("perron", "predict", "norm", "fine", cwd=trained)
        assert ended.returncode in (1, 2)
        assert "norm" in ended.stderr
        assert "--plugin" in ended.stderr
        assert "Traceback" not in ended.stderr

    def test_a_module_that_is_not_there_is_named(self, trained):
        words = ("perron", "--plugin", "no_such_module", "info")
        ended = run(*words, cwd=trained)
        assert ended.returncode == 2
        assert "no_such_module" in ended.stderr
        assert "Traceback" not in ended.stderr
