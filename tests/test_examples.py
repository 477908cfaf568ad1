"""The README's code and the examples run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Return the folder in which a quick demo left its model, and what it said."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, ROOT / "examples" / "demo.py", "--epochs", "1"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    return folder, run.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/training.md", "docs/graph.md"])
def test_the_code_on_a_page_runs(page, demo):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        capture_output=True,
        text=True,
        cwd=demo[0],
    )
    assert run.returncode == 0, run.stderr


def test_every_example_is_tested_here():
    found = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert found == {"demo.py", "word_graph.py"}


def test_the_demo_compares_shows_and_saves(demo):
    folder, told = demo
    for name in ("centrality", "self-attention", "max", "mean"):
        assert name in told
    assert "gorgeous" in told
    assert "perron predict runs/demo" in told
    assert (folder / "runs/demo/model.safetensors").exists()
    page = (folder / "runs/demo/graph.html").read_text(encoding="utf-8")
    assert page.count('"schema": "perron-graph-1"') == 8  # four sentences, two models


def test_other_centralities_of_the_word_graph_are_compared(demo):
    folder, _ = demo
    command = [sys.executable, ROOT / "examples" / "word_graph.py"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    for name in ("eigenvector", "in-degree", "closeness", "betweenness", "film"):
        assert name in run.stdout
    apart = re.search(r"PageRank without teleports differs by (\S+)", run.stdout)
    assert float(apart[1]) < 1e-6
    assert (folder / "runs/word-graph.png").read_bytes().startswith(b"\x89PNG")


def test_the_word_graph_example_says_what_it_needs(tmp_path):
    command = [sys.executable, ROOT / "examples" / "word_graph.py"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1
    assert "examples/demo.py trains a model" in run.stderr
    assert "Traceback" not in run.stderr
