"""Invalid usage of --engine. Its results are tested with Ray in tests/integrations."""

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
        (["--engine=dask"], ["--engine", "dask", "ray"]),
        (["--engine=ray"], ["--file", "Parquet"]),
        (["--engine=ray", "--file=-"], ["--file", "Parquet"]),
        (["--engine=ray", "a text"], ["--engine ray", "texts"]),
        (
            ["--engine=ray", "--file=x", "--format=csv"],
            ["--format", "csv", "--engine ray"],
        ),
        (
            ["--engine=ray", "--file=x", "--data-format=csv"],
            ["--data-format", "csv", "--engine ray", "parquet"],
        ),
        (["--engine=ray", "--file=x", "--encoding=cp1252"], ["--encoding"]),
        (["--engine=ray", "--file=x"], ["--out", "folder"]),
    ],
)
def test_incompatible_options_are_an_error(perron, model, command, options, parts):
    outcome = perron(command, model, *options)
    assert outcome.status == 2
    assert_mentions(outcome.err, *parts)
    assert outcome.out == ""


def test_an_existing_file_is_not_used_as_the_output_folder(
    perron, model, corpus, tmp_path
):
    path = tmp_path / "out"
    path.write_text("mine")
    options = ["--engine=ray", "--file", corpus, "--out", path]
    outcome = perron("predict", model, *options)
    assert outcome.status == 2
    assert_mentions(outcome.err, "--out", path)
    assert path.read_text() == "mine"


@pytest.fixture
def run_predict(perron, model, corpus, tmp_path, monkeypatch):
    """Return a function that runs the command, and fails if it starts Ray."""
    engine = pytest.importorskip("perron.integrations.corpora.ray_engine")

    def fail(*_):
        raise AssertionError("Ray was started")

    monkeypatch.setattr(engine, "ray_session", fail)
    command = ["predict", model, "--engine=ray", "--file", corpus]
    return lambda out, *options: perron(*command, "--out", tmp_path / out, *options)


def test_a_missing_column_is_reported_before_workers_start(run_predict):
    outcome = run_predict("out", "--text=review")
    assert outcome.status == 1
    assert_mentions(outcome.err, "a.parquet", "'review'", "id, text")


def test_a_conflicting_column_is_reported_before_workers_start(run_predict, corpus):
    table = pa.table({"label": [1], "text": ["fine"]})
    pq.write_table(table, corpus / "a.parquet")
    outcome = run_predict("out")
    assert outcome.status == 2
    assert_mentions(outcome.err, "'label'", "--prefix")


def test_text_pair_requires_a_pair_model(run_predict):
    outcome = run_predict("out", "--text-pair=id")
    assert outcome.status == 2
    assert_mentions(outcome.err, "'id'", "single texts")


def test_foreign_folders_are_not_touched(run_predict, corpus, tmp_path):
    outcome = run_predict("corpus/out")
    assert outcome.status == 2
    assert_mentions(outcome.err, corpus / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").touch()
    outcome = run_predict("mine")
    assert outcome.status == 2
    assert_mentions(outcome.err, tmp_path / "mine", "'thesis.txt'")
    assert len(list((tmp_path / "mine").iterdir())) == 1


def test_a_missing_extra_is_reported_by_name(run_predict, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    monkeypatch.delitem(
        sys.modules, "perron.integrations.corpora.ray_engine", raising=False
    )
    outcome = run_predict("out")
    assert outcome.status == 2
    assert_mentions(outcome.err, "--engine ray", "pip install 'perron[ray]'")
