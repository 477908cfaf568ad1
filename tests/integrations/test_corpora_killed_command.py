"""Resuming a command after its whole process group was killed."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from perron_tests.corpora import check_result, save_model, write_corpus
from perron_tests.errors import assert_mentions

pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = pytest.mark.slow
ROWS = 12_000


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("models") / "text")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    sizes = {"a.parquet": 7000, "b.parquet": 5000}
    return write_corpus(tmp_path_factory.mktemp("corpus"), sizes)


def start(model, corpus, out):
    command = [sys.executable, "-m", "perron", "predict", model, "--engine=ray"]
    command += ["--file", corpus, "--out", out, "--workers=2", "--shard-rows=600"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def wait_for_parts(out, process, count=3):
    while len(list(out.glob("part-*"))) < count or not list(out.glob(".part-*")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_command_resumes(number, model, corpus, tmp_path):
    out = tmp_path / "out"
    first = start(model, corpus, out)
    wait_for_parts(out, first)
    if number == signal.SIGTERM:  # a scheduler does not send it to Ray's processes
        first.terminate()
    else:
        os.killpg(first.pid, number)
    stdout, stderr = first.communicate()
    if number == signal.SIGKILL:
        assert first.returncode == -signal.SIGKILL
    else:
        assert first.returncode == 130
        assert "same command" in stderr
        assert "Traceback" not in stderr
    assert stdout == ""
    before = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert 3 <= len(before) < 21
    second = start(model, corpus, out)
    stdout, stderr = second.communicate()
    assert second.returncode == 0, stderr
    assert stdout == ""
    assert_mentions(stderr, "12,000 rows", "21 parts")
    # The number of parts that existed at the start.
    resumed = re.search(r"\d+", stderr.split(str(out))[-1])
    assert len(before) <= int(resumed.group()) <= 21
    after = {path: path.stat().st_mtime_ns for path in before}
    assert after == before
    check_result(out, model, ROWS)
    assert not list(out.glob(".*.part"))
