"""The command is killed as a whole, with all its processes, and run again."""

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
    command += ["--file", corpus, "--out", out, "--workers=2", "--piece-rows=600"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def wait_for_parts(out, process, count=3):
    while len(list(out.glob("part-*"))) < count or not list(out.glob(".part-*")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_command_that_was_ended_goes_on_with_the_rest(
    number, model, corpus, tmp_path
):
    out = tmp_path / "out"
    first = start(model, corpus, out)
    wait_for_parts(out, first)
    if number == signal.SIGTERM:  # as a scheduler sends it: not to Ray's processes
        first.terminate()
    else:
        os.killpg(first.pid, number)
    said, told = first.communicate()
    if number == signal.SIGKILL:
        assert first.returncode == -signal.SIGKILL
    else:
        assert first.returncode == 130
        assert "same command" in told
        assert "Traceback" not in told
    assert said == ""
    before = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert 3 <= len(before) < 21
    second = start(model, corpus, out)
    said, told = second.communicate()
    assert second.returncode == 0, told
    assert said == ""
    assert_mentions(told, "12,000 rows", "21 parts")
    there = re.search(r"\d+", told.split(str(out))[-1])  # the parts found at the start
    assert len(before) <= int(there.group()) <= 21
    after = {path: path.stat().st_mtime_ns for path in before}
    assert after == before
    check_result(out, model, ROWS)
    assert not list(out.glob(".*.part"))
