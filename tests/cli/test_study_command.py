import csv
import json
import signal
import subprocess
import sys

import psutil
import pytest
import tomli_w
from perron_tests.errors import assert_mentions
from perron_tests.training import TINY

from perron.cli.study import without_workers

SETTINGS = [option.removeprefix("--set=") for option in TINY if "--set" in option]


@pytest.fixture
def study(tmp_path, texts):
    recipe = {
        "data": {"format": "csv", "train": str(texts)},
        "model": {"encoder": {"name": "bilstm"}},
    }
    (tmp_path / "recipe.toml").write_text(tomli_w.dumps(recipe))
    table = {
        "title": "two poolings",
        "recipe": str(tmp_path / "recipe.toml"),
        "set": [*SETTINGS, "training.max_epochs=1"],
        "seeds": 2,
        "variants": {
            name: {"set": [f"model.aggregator={name}"]} for name in ("max", "mean")
        },
    }
    path = tmp_path / "study.toml"
    path.write_text(tomli_w.dumps(table))
    return path


def test_a_study_becomes_a_table(perron, study, tmp_path):
    out = tmp_path / "runs"
    told = perron("study", study, "--out", out)
    assert told.status == 0, told.err
    assert "two poolings" in told.out
    assert_mentions(told.err, "run 4 of 4", "perron train")
    text = (out / "study.md").read_text()
    assert "| mean | 2 |" in text
    assert "difference in test accuracy to max" in text
    rows = json.loads((out / "study.json").read_text())
    assert [row["variant"] for row in rows] == ["max", "mean"]
    assert (out / "study.png").stat().st_size > 1000
    with (out / "runs.csv").open(newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["0", "0", "1", "1"]
    told = perron("study", study, "--out", out, "--seeds", 1)  # of those that are there
    assert "run" not in told.err.replace("runs", "")
    assert "| mean | 1 |" in (out / "study.md").read_text()


def test_workers_share_the_runs(perron, study, tmp_path):
    out = tmp_path / "runs"
    told = perron("study", study, "--out", out, "--workers", 2)
    assert told.status == 0, told.err
    assert len(list(out.glob("*/record.json"))) == 4
    assert told.err.count("perron train") == 4  # none was done twice


def test_a_worker_that_fails_is_told(perron, study, tmp_path):
    text = study.read_text().replace("texts.csv", "none.csv")
    (tmp_path / "recipe.toml").write_text(
        (tmp_path / "recipe.toml").read_text().replace("texts.csv", "none.csv")
    )
    study.write_text(text)
    told = perron("study", study, "--out", tmp_path / "runs", "--workers", 2)
    assert told.status == 1
    assert_mentions(told.err, "none.csv", "2 of 2 processes")


def test_a_study_that_is_ended_ends_its_workers(study, tmp_path):
    study.write_text(study.read_text().replace("max_epochs=1", "max_epochs=9999"))
    command = [sys.executable, "-m", "perron", "study", study, "--workers", "2"]
    with subprocess.Popen(
        [*command, "--out", tmp_path / "runs"], stderr=subprocess.PIPE, text=True
    ) as ours:
        begun = [line for _, line in zip(range(2), ours.stderr, strict=False)]
        workers = psutil.Process(ours.pid).children(recursive=True)
        ours.send_signal(signal.SIGTERM)
        ours.communicate(timeout=60)
    assert len(begun) == len(workers) == 2
    assert ours.returncode == 130
    assert not any(worker.is_running() for worker in workers)


def test_workers_are_startedwithout_workers():
    assert without_workers(["study", "x", "--workers", "2", "--quiet"]) == [
        "study",
        "x",
        "--quiet",
    ]
    assert without_workers(["--workers=2", "x"]) == ["x"]
