"""A killed run resumes as if it had never been interrupted."""

import signal
import subprocess
import sys

import pytest
from perron_tests import environment
from perron_tests.errors import assert_mentions

KILLED = -signal.SIGKILL
EXIT_STATUS = {
    "again": 0,
    "before the first checkpoint": KILLED,
    "in the first epoch": KILLED,
    "in a later epoch": KILLED,
    "half of a checkpoint": KILLED,
    "before a checkpoint is renamed": KILLED,
    "half of the best weights": KILLED,
    "between best weights and checkpoint": KILLED,
    "between checkpoint and first model": KILLED,
    "between checkpoint and next model": KILLED,
    "before the first model is complete": KILLED,
    "before the first model has a configuration": KILLED,
    "while the first model card is written": KILLED,
    "while the next model card is written": KILLED,
    "while the tokenizer is written": KILLED,
    "while the result is written": KILLED,
    "SIGTERM": 128 + signal.SIGTERM,
    "SIGINT": 128 + signal.SIGINT,
    "disk full": 1,
    "averaged, in a later epoch": KILLED,
    "averaged, between best weights and checkpoint": KILLED,
    "averaged, SIGTERM": 128 + signal.SIGTERM,
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run = subprocess.run(
        [sys.executable, "-m", "perron_tests.kill_and_resume", folder],
        capture_output=True,
        text=True,
        env=environment(PERRON_CACHE=str(folder / "cache")),
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    lines = [line.split("|") for line in run.stdout.splitlines() if "|" in line]
    return folder, {name: (int(status), same) for name, status, same in lines}


@pytest.mark.parametrize("moment", EXIT_STATUS)
def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(outcome, moment):
    assert outcome[1][moment] == (EXIT_STATUS[moment], "True")


def test_a_full_disk_is_a_clear_error(outcome):
    message = (outcome[0] / "disk-full" / "error.txt").read_text()
    assert_mentions(message, "checkpoint.safetensors", "File too large")
