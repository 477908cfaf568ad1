"""The README's code and the examples run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = {"word_weights.py": ["--epochs", "1"]}


def test_the_readmes_code_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(blocks) >= 2
    code = "\n".join(blocks)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_every_example_is_listed_here():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name):
    command = [sys.executable, ROOT / "examples" / name, *EXAMPLES[name]]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "centrality" in run.stdout


CONCLUSIONS = {
    "solver": "than batched LU up to 50 words",
    "pooling": "`CentralityPool` takes at most",
    "length": "1024 words take",
}


@pytest.mark.parametrize("name", CONCLUSIONS)
def test_the_benchmark_prints_its_conclusions(name):
    command = [sys.executable, ROOT / "benchmarks" / f"{name}.py", "--quick"]
    command += ["--budget", "0.1"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert CONCLUSIONS[name] in " ".join(run.stdout.split())
