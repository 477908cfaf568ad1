"""The Ray engine: every row exactly once, even if workers or the run are killed.

Ray is started once for all tests in this file, because that takes seconds.
"""

import os
import signal
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from perron_tests.corpora import check_result, save_model, write_corpus
from perron_tests.errors import assert_mentions, mentions

import perron
from perron.cli.app import run as run_command
from perron.errors import DataError, SettingsError
from perron.integrations.corpora import TextMapper

ray = pytest.importorskip("ray", reason="needs the extra ray")
from perron.integrations.corpora.ray_engine import (  # noqa: E402
    ray_session,
    run_on_ray,
)

# Ray Data warns about its own settings, which are not set here.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
ROWS = 9000


@pytest.fixture(scope="module", autouse=True)
def _two_workers():
    with ray_session(2, None):
        yield
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("models") / "text")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    sizes = {"a.parquet": 5000, "b.parquet": 0, "c/d.parquet": 4000}
    return write_corpus(tmp_path_factory.mktemp("corpus"), sizes)


class Killer(threading.Thread):
    """A thread that kills a worker while it is writing a part."""

    def __init__(self, out):
        super().__init__()
        self.out, self.leftover = out, None
        self.stopped = threading.Event()

    def run(self):
        while self.leftover is None and not self.stopped.is_set():
            time.sleep(0.01)
            for path in self.out.glob(".part-*.part"):
                os.kill(int(path.name.split(".")[3]), signal.SIGKILL)
                time.sleep(0.1)
                self.leftover = path.name if path.exists() else None
                break


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["perron", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        run_command()
    printed = capsys.readouterr()
    return exit_.value.code or 0, printed.out, printed.err


def test_killing_a_worker_neither_loses_nor_duplicates_rows(
    corpus, model, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "out"
    killer = Killer(out)
    killer.start()
    predict = ["predict", model, "--engine=ray", "--file", corpus, "--out", out]
    try:
        options = ["--workers=2", "--shard-rows=1000"]
        status, stdout, stderr = command(monkeypatch, capsys, *predict, *options)
    finally:
        killer.stopped.set()
        killer.join()
    assert (status, stdout) == (0, ""), stderr
    assert_mentions(stderr, "9,000 rows", "9 parts", out)
    assert killer.leftover is not None  # incomplete file of the dead worker
    check_result(out, model, ROWS)
    assert not list(out.glob(".*.part"))


class StopEarly(Exception):
    pass


def test_a_stopped_run_resumes(corpus, model, tmp_path):
    out, mapper = tmp_path / "out", TextMapper(model)

    def stop(progress):
        if progress.shards_done == 3:
            raise StopEarly

    with pytest.raises(StopEarly):
        run_on_ray(mapper, corpus, out, workers=1, shard_rows=1000, on_progress=stop)
    assert not (out / "_SUCCESS").exists()
    before = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert 3 <= len(before) < 9
    reports = []
    result = run_on_ray(
        mapper, corpus, out, workers=1, shard_rows=1000, on_progress=reports.append
    )
    assert result.rows == ROWS
    assert result.computed_shards == len(reports) <= 6
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert reports[-1].shards_done == reports[-1].total_shards == 9
    check_result(out, model, ROWS)
    third = run_on_ray(mapper, corpus, out, workers=1, shard_rows=1000)
    assert (third.rows, third.computed_shards) == (ROWS, 0)


@pytest.mark.slow
def test_an_error_in_a_worker_names_the_file_and_the_row(model, tmp_path):
    write_corpus(tmp_path / "corpus", {"a.parquet": 1500})
    path = tmp_path / "corpus/a.parquet"
    table = pq.read_table(path).to_pylist()
    table[1200]["text"] = None
    pq.write_table(pa.Table.from_pylist(table), path)
    run = [TextMapper(model), path, tmp_path / "out"]
    with pytest.raises(DataError, match=mentions("a.parquet, line 1201", "text")):
        run_on_ray(*run, workers=1)
    with pytest.raises(SettingsError, match=mentions("skip_invalid", False, True)):
        run_on_ray(*run, workers=1, skip_invalid=True)
    out = tmp_path / "second"
    result = run_on_ray(*run[:2], out, workers=1, skip_invalid=True)
    assert (result.rows, result.skipped_rows) == (1499, 1)
    check_result(out, model, 1500, missing=(1200,))


@pytest.mark.slow
def test_the_command_encodes_a_corpus(corpus, model, tmp_path, monkeypatch, capsys):
    out = tmp_path / "vectors"
    encode = ["encode", model, "--engine=ray", "--file", corpus, "--out", out]
    encode += ["--workers=1", "--shard-rows=4000", "--prefix=my_"]
    status, stdout, stderr = command(monkeypatch, capsys, *encode)
    assert (status, stdout) == (0, ""), stderr
    assert_mentions(stderr, "9,000 rows", "3 parts", out)
    table = pq.read_table(out)
    assert table["id"].to_pylist() == list(range(ROWS))
    expected = perron.load(model).encode(table["text"].to_pylist())
    actual = np.stack(table["my_vector"].to_numpy())
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    stderr = command(monkeypatch, capsys, *encode)[2]
    assert_mentions(stderr.split(str(out))[-1], 3)  # parts that already existed


@pytest.mark.slow
def test_the_mapper_works_in_map_batches_of_ray_data(corpus, model):
    dataset = ray.data.read_parquet(str(corpus / "a.parquet")).limit(100)
    rows = dataset.map_batches(TextMapper(model), batch_size=32).take_all()
    texts = [row["text"] for row in rows]
    expected = perron.load(model).predict(texts)
    assert [row["label"] for row in rows] == expected
    assert set(rows[0]["probabilities"]) == set(perron.load(model).labels)
