import csv
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from perron_tests.errors import assert_mentions

from papers.gong2019 import reproduce as module
from papers.gong2019.reproduce import TARGETS
from papers.gong2019.tests.small_data import (
    TINY,
    write_packaged,
    write_sick,
    write_snli,
    write_sst,
    write_stars,
    write_stsb,
)

ROOT = Path(__file__).parents[3]
SETTINGS = [f"--set={setting}" for setting in (*TINY, "data.max_train_rows=32")]


@pytest.mark.slow
def test_everything_is_reproduced_from_small_data(reproduce, tmp_path, monkeypatch):
    """Every dataset exists in its published format; only GloVe 840B is missing."""
    root, out = tmp_path / "data", tmp_path / "out"
    write_sst(root)
    write_snli(root)
    write_sick(root)
    write_stsb(root)
    for name in ("yelp2013", "yelp2014", "imdb"):
        write_stars(root, name)
    package = write_packaged(root)
    monkeypatch.setattr("perron.text.formats.corpora.packaged_file", lambda: package)
    command = ["all", "--data-dir", root, "--out", out, "--seeds", 1]
    outcome = reproduce(*command, *SETTINGS)
    assert outcome.status == 0, outcome.err
    assert "missing" not in outcome.out.lower()
    for name, ending in (
        *((name, "md") for name in TARGETS),
        *((name, "csv") for name in TARGETS),
        *((name, "svg") for name in ("figure1", "graph", "convergence")),
        *((name, "png") for name in ("figure1", "graph", "convergence")),
    ):
        assert (out / f"{name}.{ending}").stat().st_size > 100
    for path in out.glob("*.svg"):
        ET.parse(path)
    for table, studies in (("table3", 8), ("table4", 2)):
        with (out / f"{table}.csv").open(newline="") as file:
            header, *rows = csv.reader(file)
        ours = [k for k, name in enumerate(header) if name.endswith("ours")]
        assert len(ours) == studies
        run = [row for row in rows if "(cited)" not in row[0]]
        assert len(run) == 8
        filled = [row[k] for row in run for k in ours if row[k] != "-"]
        assert len(filled) == (6 * 8 + 2 * 4 if table == "table3" else 2 * 8)
        assert all(cell.endswith("(1)") for cell in filled)
        with (out / f"{table}-runs.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                assert row["command"].startswith("perron train ")
                assert row["commit"]
                assert len(row["data"]) == 16

    # Finished runs are not repeated.
    before = {
        path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/record.json")
    }
    assert len(before) == 2 * 16 + 6 * 8 + 2 * 4  # the last are the phrase studies
    outcome = reproduce("table3", *command[1:], *SETTINGS)
    assert outcome.status == 0
    assert "run 1" not in outcome.err
    assert before == {path: path.stat().st_mtime_ns for path in before}

    # Deleted runs are repeated, by two processes.
    shutil.rmtree(out / "runs" / "sick")
    outcome = reproduce("table4", *command[1:], *SETTINGS, "--workers", 2)
    assert outcome.status == 0, outcome.err
    assert outcome.err.count(": perron train sick ") == 8
    assert len(list(out.glob("runs/sick/*/record.json"))) == 8


def test_the_command_runs_as_a_module(tmp_path):
    outcome = subprocess.run(
        [sys.executable, "-m", "papers.gong2019", "table9", "--out", tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert outcome.returncode == 2
    assert "table9" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_tables_are_written_without_any_data(reproduce, tmp_path):
    (tmp_path / "data").mkdir()
    outcome = reproduce("table4", "--data-dir", tmp_path / "data", "--out", tmp_path)
    assert outcome.status == 0
    assert "| centrality | 85.3 | missing | missing |" in outcome.out
    assert_mentions(outcome.out, "SNLI 1.0", "snli/snli_1.0_train.jsonl")
    assert (tmp_path / "table4.md").read_text().startswith("# Table 4")
    assert (tmp_path / "table4-runs.csv").exists()


def test_workers_share_only_the_runs_of_tables(reproduce, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        module, "run_workers", lambda *args, **kwargs: calls.append((*args, kwargs))
    )
    root = tmp_path / "data"
    root.mkdir()
    options = ["--data-dir", root, "--out", tmp_path, "--set", "vectors=[]"]
    for target in ("table2", "table4", "figure1"):
        outcome = reproduce(target, *options, "--workers", 2)
        assert outcome.status == 0, outcome.err
    arguments = [f"--out={tmp_path}", f"--data-dir={root}", "--set=vectors=[]"]
    assert calls == [(2, ["table4", *arguments], {"module": "papers.gong2019"})]


def test_invalid_arguments_are_reported(reproduce, tmp_path):
    outcome = reproduce("table5", "--out", tmp_path)
    assert outcome.status == 2
    assert_mentions(outcome.err, "table5", "table1", "table2")
    outcome = reproduce("table1", "--data-dir", tmp_path / "none")
    assert outcome.status == 2
    assert_mentions(outcome.err, "--data-dir", tmp_path / "none")
    outcome = reproduce("table2", "--set", "training.lr=1", "--out", tmp_path)
    assert outcome.status == 2
    assert_mentions(outcome.err, "training.lr")
