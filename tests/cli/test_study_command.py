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
        "title": "two aggregators",
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


def test_a_study_writes_a_table(perron, study, tmp_path):
    out = tmp_path / "runs"
    outcome = perron("study", study, "--out", out)
    assert outcome.status == 0, outcome.err
    assert "two aggregators" in outcome.out
    assert_mentions(outcome.err, "run 4 of 4", "perron train")
    text = (out / "study.md").read_text()
    assert "| mean | 2 |" in text
    assert "difference in test accuracy from max" in text
    rows = json.loads((out / "study.json").read_text())
    assert [row["variant"] for row in rows] == ["max", "mean"]
    assert (out / "study.png").stat().st_size > 1000
    with (out / "runs.csv").open(newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["0", "0", "1", "1"]
    outcome = perron("study", study, "--out", out, "--seeds", 1)  # already finished
    assert "perron train" not in outcome.err
    assert "| mean | 1 |" in (out / "study.md").read_text()


def test_workers_share_the_runs(perron, study, tmp_path):
    out = tmp_path / "runs"
    outcome = perron("study", study, "--out", out, "--workers", 2)
    assert outcome.status == 0, outcome.err
    assert len(list(out.glob("*/record.json"))) == 4
    assert outcome.err.count("perron train") == 4  # no run was repeated


def test_a_failed_worker_is_reported(perron, study, tmp_path):
    text = study.read_text().replace("texts.csv", "none.csv")
    (tmp_path / "recipe.toml").write_text(
        (tmp_path / "recipe.toml").read_text().replace("texts.csv", "none.csv")
    )
    study.write_text(text)
    outcome = perron("study", study, "--out", tmp_path / "runs", "--workers", 2)
    assert outcome.status == 1
    assert_mentions(outcome.err, "none.csv", "2 of 2 processes")


def test_terminating_a_study_terminates_its_workers(study, tmp_path):
    study.write_text(study.read_text().replace("max_epochs=1", "max_epochs=9999"))
    command = [sys.executable, "-m", "perron", "study", study, "--workers", "2"]
    with subprocess.Popen(
        [*command, "--out", tmp_path / "runs"], stderr=subprocess.PIPE, text=True
    ) as process:
        started = [line for _, line in zip(range(2), process.stderr, strict=False)]
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert len(started) == len(workers) == 2
    assert process.returncode == 130
    assert not any(worker.is_running() for worker in workers)


def test_workers_are_started_without_the_workers_option():
    assert without_workers(["study", "x", "--workers", "2", "--quiet"]) == [
        "study",
        "x",
        "--quiet",
    ]
    assert without_workers(["--workers=2", "x"]) == ["x"]
