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
    """Every dataset in its owners' format; nothing is missing but GloVe 840B."""
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
    told = reproduce(*command, *SETTINGS)
    assert told.status == 0, told.err
    assert "missing" not in told.out.lower()
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
        ours = [place for place, name in enumerate(header) if name.endswith("ours")]
        assert len(ours) == studies
        run = [row for row in rows if "(cited)" not in row[0]]
        assert len(run) == 8
        told = [row[place] for row in run for place in ours if row[place] != "-"]
        assert len(told) == (6 * 8 + 2 * 4 if table == "table3" else 2 * 8)
        assert all(cell.endswith("(1)") for cell in told)
        with (out / f"{table}-runs.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                assert row["command"].startswith("perron train ")
                assert row["commit"]
                assert len(row["data"]) == 16

    # Once more: what is done is not done again.
    before = {
        path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/record.json")
    }
    assert len(before) == 2 * 16 + 6 * 8 + 2 * 4  # those of phrases
    told = reproduce("table3", *command[1:], *SETTINGS)
    assert told.status == 0
    assert "run 1" not in told.err
    assert before == {path: path.stat().st_mtime_ns for path in before}

    # What is not there any more is done anew, by two processes.
    shutil.rmtree(out / "runs" / "sick")
    told = reproduce("table4", *command[1:], *SETTINGS, "--workers", 2)
    assert told.status == 0, told.err
    assert told.err.count(": perron train sick ") == 8
    assert len(list(out.glob("runs/sick/*/record.json"))) == 8


def test_it_runs_as_a_module(tmp_path):
    told = subprocess.run(
        [sys.executable, "-m", "papers.gong2019", "table9", "--out", tmp_path],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert told.returncode == 2
    assert "table9" in told.stderr
    assert "Traceback" not in told.stderr


def test_tables_are_made_without_any_data(reproduce, tmp_path):
    (tmp_path / "data").mkdir()
    told = reproduce("table4", "--data-dir", tmp_path / "data", "--out", tmp_path)
    assert told.status == 0
    assert "| centrality | 85.3 | missing | missing |" in told.out
    assert_mentions(told.out, "SNLI 1.0", "snli/snli_1.0_train.jsonl")
    assert (tmp_path / "table4.md").read_text().startswith("# Table 4")
    assert (tmp_path / "table4-runs.csv").exists()


def test_processes_share_the_runs_of_tables_and_nothing_else(
    reproduce, tmp_path, monkeypatch
):
    shared = []
    monkeypatch.setattr(
        module, "share_work", lambda *words, **named: shared.append((*words, named))
    )
    root = tmp_path / "data"
    root.mkdir()
    options = ["--data-dir", root, "--out", tmp_path, "--set", "vectors=[]"]
    for target in ("table2", "table4", "figure1"):
        told = reproduce(target, *options, "--workers", 2)
        assert told.status == 0, told.err
    words = [f"--out={tmp_path}", f"--data-dir={root}", "--set=vectors=[]"]
    assert shared == [(2, ["table4", *words], {"module": "papers.gong2019"})]


def test_what_is_wrong_is_told(reproduce, tmp_path):
    told = reproduce("table5", "--out", tmp_path)
    assert told.status == 2
    assert_mentions(told.err, "table5", "table1", "table2")
    told = reproduce("table1", "--data-dir", tmp_path / "none")
    assert told.status == 2
    assert_mentions(told.err, "--data-dir", tmp_path / "none")
    told = reproduce("table2", "--set", "training.lr=1", "--out", tmp_path)
    assert told.status == 2
    assert_mentions(told.err, "training.lr")
