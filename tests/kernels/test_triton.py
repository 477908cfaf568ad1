"""The Triton kernels pass the tests of solver and pooling, without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
from perron_tests import HELPERS, environment
from perron_tests.triton import FILES, TESTS, run_tests

needs_triton = pytest.mark.skipif(
    sys.platform != "linux", reason="Triton is available for Linux"
)


@needs_triton
@pytest.mark.parametrize("device", ["interpreter", "ptx"])
def test_kernels_pass_their_tests(device):
    output = run_tests(device)
    print(output.splitlines()[-1])


def test_without_a_gpu_the_command_says_what_to_do():
    run = subprocess.run(
        [sys.executable, "-m", "perron_tests.triton"],
        env=environment(CUDA_VISIBLE_DEVICES=""),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "need a GPU" in run.stderr
    assert "--tiny" in run.stderr


def test_make_gpu_runs_the_tests_and_the_benchmark():
    makefile = Path(HELPERS.parents[1] / "Makefile").read_text()
    recipe = makefile.split("\ngpu:")[1].split("\n\n")[0]
    assert "-m perron_tests.triton $(ARGS)" in recipe
    assert "benchmarks/gpu.py" in recipe
    assert all((TESTS / name).exists() for name in FILES)
