"""What --engine refuses; that it computes is tested with Ray itself."""

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from perron_tests.errors import assert_mentions


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "text": ["fine", "dull"]}), path)
    return path.parent


@pytest.mark.parametrize("command", ["predict", "encode"])
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--workers=2"], ["--workers", "--engine ray"]),
        (["--shard-rows=2"], ["--shard-rows", "--engine ray"]),
        (["--address=auto"], ["--address", "--engine ray"]),
        (["--engine=dask"], ["--engine dask", "ray"]),
        (["--engine=ray"], ["--file", "Parquet"]),
        (["--engine=ray", "--file=-"], ["--file", "Parquet"]),
        (["--engine=ray", "a text"], ["--engine ray", "texts"]),
        (
            ["--engine=ray", "--file=x", "--format=csv"],
            ["--format csv", "--engine ray"],
        ),
        (
            ["--engine=ray", "--file=x", "--data-format=csv"],
            ["--data-format csv", "--engine ray", "Parquet"],
        ),
        (["--engine=ray", "--file=x", "--encoding=cp1252"], ["--encoding"]),
        (["--engine=ray", "--file=x"], ["--out", "folder"]),
    ],
)
def test_options_that_do_not_fit_are_refused(perron, model, command, options, parts):
    told = perron(command, model, *options)
    assert told.status == 2
    assert_mentions(told.err, *parts)
    assert told.out == ""


def test_a_file_is_no_folder_for_parts(perron, model, corpus, tmp_path):
    path = tmp_path / "out"
    path.write_text("mine")
    options = ["--engine=ray", "--file", corpus, "--out", path]
    told = perron("predict", model, *options)
    assert told.status == 2
    assert f"--out {path}" in told.err
    assert path.read_text() == "mine"


@pytest.fixture
def ready(perron, model, corpus, tmp_path, monkeypatch):
    """Return the command on a corpus; it fails if it comes to start Ray."""
    engine = pytest.importorskip("perron.integrations.corpora.ray_engine")

    def never(*_):
        raise AssertionError("Ray was started")

    monkeypatch.setattr(engine, "ray_session", never)
    begin = ["predict", model, "--engine=ray", "--file", corpus]
    return lambda out, *more: perron(*begin, "--out", tmp_path / out, *more)


def test_a_missing_column_is_said_before_any_worker_starts(ready):
    told = ready("out", "--text=review")
    assert told.status == 1
    assert_mentions(told.err, "a.parquet", "'review'", "id, text")


def test_a_column_that_would_be_written_over_is_said_before(ready, corpus):
    table = pa.table({"label": [1], "text": ["fine"]})
    pq.write_table(table, corpus / "a.parquet")
    told = ready("out")
    assert told.status == 2
    assert_mentions(told.err, "'label'", "--prefix")


def test_a_second_column_needs_a_pair_model(ready):
    told = ready("out", "--text-pair=id")
    assert told.status == 2
    assert_mentions(told.err, "'id'", "single texts")


def test_folders_that_are_not_its_own_are_left_alone(ready, corpus, tmp_path):
    told = ready("corpus/out")
    assert told.status == 2
    assert_mentions(told.err, corpus / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").touch()
    told = ready("mine")
    assert told.status == 2
    assert_mentions(told.err, tmp_path / "mine", "'thesis.txt'")
    assert len(list((tmp_path / "mine").iterdir())) == 1


def test_a_missing_extra_is_named(ready, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    monkeypatch.delitem(
        sys.modules, "perron.integrations.corpora.ray_engine", raising=False
    )
    told = ready("out")
    assert told.status == 2
    assert_mentions(told.err, "--engine ray", "pip install 'perron[ray]'")
