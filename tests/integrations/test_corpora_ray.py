"""The engine on Ray: killed, stopped, resumed, and every row once all the same.

Ray is started once for all tests of this file: that takes seconds.
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

# Ray Data warns of settings of its own that nobody here has set.
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
    """Kills a worker while it is writing a part."""

    def __init__(self, out):
        super().__init__()
        self.out, self.left = out, None
        self.over = threading.Event()

    def run(self):
        while self.left is None and not self.over.is_set():
            time.sleep(0.01)
            for path in self.out.glob(".part-*.part"):
                os.kill(int(path.name.split(".")[3]), signal.SIGKILL)
                time.sleep(0.1)
                self.left = path.name if path.exists() else None
                break


def command(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["perron", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        run_command()
    told = capsys.readouterr()
    return ended.value.code or 0, told.out, told.err


def test_a_killed_worker_loses_and_doubles_no_row(
    corpus, model, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "out"
    killer = Killer(out)
    killer.start()
    predict = ["predict", model, "--engine=ray", "--file", corpus, "--out", out]
    try:
        options = ["--workers=2", "--piece-rows=1000"]
        status, said, told = command(monkeypatch, capsys, *predict, *options)
    finally:
        killer.over.set()
        killer.join()
    assert (status, said) == (0, ""), told
    assert_mentions(told, "9,000 rows", "9 parts", out)
    assert killer.left is not None  # a file of the dead worker, half written
    check_result(out, model, ROWS)
    assert not list(out.glob(".*.part"))


class Enough(Exception):
    pass


def test_a_run_that_was_stopped_goes_on_with_the_rest(corpus, model, tmp_path):
    out, mapper = tmp_path / "out", TextMapper(model)

    def stop(progress):
        if progress.pieces == 3:
            raise Enough

    with pytest.raises(Enough):
        run_on_ray(mapper, corpus, out, workers=1, piece_rows=1000, watch=stop)
    assert not (out / "_SUCCESS").exists()
    before = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert 3 <= len(before) < 9
    told = []
    outcome = run_on_ray(
        mapper, corpus, out, workers=1, piece_rows=1000, watch=told.append
    )
    assert outcome.rows == ROWS
    assert outcome.computed == len(told) <= 6
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert told[-1].pieces == told[-1].all_pieces == 9
    check_result(out, model, ROWS)
    third = run_on_ray(mapper, corpus, out, workers=1, piece_rows=1000)
    assert (third.rows, third.computed) == (ROWS, 0)


@pytest.mark.slow
def test_an_error_of_a_worker_names_file_and_row(model, tmp_path):
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
    outcome = run_on_ray(*run[:2], out, workers=1, skip_invalid=True)
    assert (outcome.rows, outcome.left_out) == (1499, 1)
    check_result(out, model, 1500, missing=(1200,))


@pytest.mark.slow
def test_the_command_encodes_a_corpus(corpus, model, tmp_path, monkeypatch, capsys):
    out = tmp_path / "vectors"
    encode = ["encode", model, "--engine=ray", "--file", corpus, "--out", out]
    encode += ["--workers=1", "--piece-rows=4000", "--prefix=my_"]
    status, said, told = command(monkeypatch, capsys, *encode)
    assert (status, said) == (0, ""), told
    assert_mentions(told, "9,000 rows", "3 parts", out)
    table = pq.read_table(out)
    assert table["id"].to_pylist() == list(range(ROWS))
    want = perron.load(model).encode(table["text"].to_pylist())
    got = np.stack(table["my_vector"].to_numpy())
    np.testing.assert_allclose(got, want, atol=1e-5)
    told = command(monkeypatch, capsys, *encode)[2]
    assert_mentions(told.split(str(out))[-1], 3)  # the parts that were there already


@pytest.mark.slow
def test_ray_data_takes_the_mapper_itself(corpus, model):
    dataset = ray.data.read_parquet(str(corpus / "a.parquet")).limit(100)
    rows = dataset.map_batches(TextMapper(model), batch_size=32).take_all()
    texts = [row["text"] for row in rows]
    want = perron.load(model).predict(texts)
    assert [row["label"] for row in rows] == want
    assert set(rows[0]["probabilities"]) == set(perron.load(model).labels)
