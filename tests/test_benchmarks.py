"""The benchmarks run. Use `make bench` for actual measurements."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONCLUSIONS = {
    "solver": "than batched LU up to 50 words",
    "pooling": "`CentralityPool` takes at most",
    "length": "1,024 words take",
    "training_scale": "a gradient takes",
    "roofline": "None was measured on a GPU",
    "launches": "launches for 50 words, 2.1 for each more word",
}
QUICK = {"training_scale", "launches"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in CONCLUSIONS
    ],
)
def test_the_benchmark_prints_its_conclusions(name):
    command = [sys.executable, ROOT / "benchmarks" / f"{name}.py", "--quick"]
    command += ["--budget", "0.1"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert CONCLUSIONS[name] in " ".join(run.stdout.split())
