"""Shards of a corpus and their parts, in a single process."""

import json
import os
import resource
import signal
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from perron_tests.corpora import check_result, save_model, write_corpus
from perron_tests.errors import assert_mentions, mentions

from perron.errors import DataError, SettingsError
from perron.integrations.corpora import TextMapper, worker
from perron.integrations.corpora.parts import (
    build_manifest,
    check_output_folder,
    find_corpus,
    finish_output,
    missing_shards,
    open_output,
    part_name,
)
from perron.integrations.corpora.worker import ShardWorker, WorkerConfig
from perron.text.formats import Columns

TEXT = Columns("text", None, None)
STRING_TYPES = [pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
SIZES = {"b.parquet": 2500, "a/z.parquet": 0, "a/c.parquet": 900, "c.parquet": 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("models") / "text")


@pytest.fixture
def folder(tmp_path):
    # Sorted by path, which is the order of the rows.
    sizes = dict(sorted(SIZES.items()))
    return write_corpus(tmp_path / "corpus", sizes)


def worker_config(corpus, model, out, skip_invalid=False):
    mapper = TextMapper(model)
    out.mkdir()
    schema = pa.schema([*corpus.schema, *mapper.new_fields])
    return WorkerConfig(mapper, corpus.root, out, schema, skip_invalid)


def run_locally(path, model, out, shard_rows=1000, skip_invalid=False):
    """Run the job without Ray; return the first problem, or the row counts."""
    corpus = find_corpus(path, TEXT)
    shard_worker = ShardWorker(worker_config(corpus, model, out, skip_invalid))
    shards = corpus.shards(shard_rows)
    for shard in reversed(shards):
        result = shard_worker(asdict(shard))
        if result["problem"]:
            return result["problem"]
    return finish_output(out, shards)


def test_shards_cover_every_row_of_the_corpus(folder):
    corpus = find_corpus(folder, TEXT)
    assert [file.name for file in corpus.files] == sorted(SIZES)
    shards = corpus.shards(1000)
    assert [(shard.file, shard.start, shard.rows) for shard in shards] == [
        ("a/c.parquet", 0, 900),
        ("b.parquet", 0, 1000),
        ("b.parquet", 1000, 1000),
        ("b.parquet", 2000, 500),
        ("c.parquet", 0, 1),
    ]
    assert [shard.number for shard in shards] == list(range(5))


@pytest.mark.parametrize(("shard_rows", "batch"), [(300, 7000), (1000, 250)])
def test_parts_have_every_row_once_in_order(
    shard_rows, batch, folder, model, tmp_path, monkeypatch
):
    monkeypatch.setattr(worker, "BATCH_ROWS", batch)
    counts = run_locally(folder, model, tmp_path / "out", shard_rows)
    assert counts == (3401, 0)
    check_result(tmp_path / "out", model, 3401)
    summary = json.loads((tmp_path / "out/_SUCCESS").read_text())
    assert (summary["rows"], summary["skipped_rows"]) == (3401, 0)


def test_an_empty_corpus_has_one_part_with_the_columns(model, tmp_path):
    write_corpus(tmp_path / "corpus", {"a.parquet": 0, "b.parquet": 0})
    assert run_locally(tmp_path / "corpus", model, tmp_path / "out") == (0, 0)
    table = pq.read_table(tmp_path / "out")
    assert table.column_names == ["id", "text", "label", "probabilities"]
    assert len(table) == 0


def test_hidden_files_are_ignored(folder):
    (folder / "_temporary").mkdir()
    for name in ("_temporary/x.parquet", ".hidden.parquet", "notes.txt"):
        (folder / name).write_bytes(b"not Parquet")
    assert len(find_corpus(folder, TEXT).files) == 4


def test_an_invalid_corpus_is_refused(folder, tmp_path):
    with pytest.raises(DataError, match=mentions(tmp_path / "nothing")):
        find_corpus(tmp_path / "nothing", TEXT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=mentions(tmp_path / "empty", "*.parquet")):
        find_corpus(tmp_path / "empty", TEXT)
    with pytest.raises(
        DataError, match=mentions("c.parquet", "'review'", "id", "text")
    ):
        find_corpus(folder, Columns("review", None, None))
    with pytest.raises(DataError, match=mentions("'id'", "int64")):
        find_corpus(folder, Columns("id", None, None))
    (folder / "d.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(DataError, match=mentions("d.parquet", "Parquet")):
        find_corpus(folder, TEXT)


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ({"text": ["x"]}, ["'id'"]),
        ({"id": [1], "text": ["x"], "more": [1]}, ["'more'"]),
        ({"id": ["1"], "text": ["x"]}, ["'id'", "string", "int64"]),
        ({"text": ["x"], "id": [1]}, ["order"]),
    ],
)
def test_files_with_different_columns_are_refused(columns, difference, folder):
    pq.write_table(pa.table(columns), folder / "d.parquet")
    with pytest.raises(DataError, match=mentions("d.parquet", *difference)):
        find_corpus(folder, TEXT)


@pytest.mark.parametrize("string_type", STRING_TYPES)
def test_texts_can_have_other_arrow_string_types(string_type, model, tmp_path):
    texts = pa.array(["good film", "bad", "good film"]).cast(string_type)
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"id": [0, 1, 2], "text": texts}), path)
    assert run_locally(path, model, tmp_path / "out") == (3, 0)
    check_result(tmp_path / "out", model, 3)


@pytest.fixture
def invalid_rows(tmp_path):
    """A file with a null in row 3, a NUL byte in row 5, and invalid UTF-8 in row 7."""
    texts = [b"good", b"bad", None, b"film", b"a\0b", b"film", b"\xff", b"it"]
    column = pa.array(texts, pa.binary())
    column = pa.StringArray.from_buffers(
        len(texts), column.buffers()[1], column.buffers()[2], column.buffers()[0]
    )
    path = tmp_path / "invalid.parquet"
    pq.write_table(pa.table({"id": range(8), "text": column}), path)
    return path


def test_an_invalid_row_is_named_by_file_and_row(invalid_rows, model, tmp_path):
    problem = run_locally(invalid_rows, model, tmp_path / "out")
    assert_mentions(problem, "invalid.parquet, line 3", "text", "--skip-invalid")
    assert not list((tmp_path / "out").iterdir())
    problem = run_locally(invalid_rows, model, tmp_path / "two", shard_rows=3)
    assert_mentions(problem, "invalid.parquet, line 7", "text", "UTF-8")


def test_invalid_rows_are_skipped_and_counted(invalid_rows, model, tmp_path):
    out = tmp_path / "out"
    assert run_locally(invalid_rows, model, out, 5, skip_invalid=True) == (5, 3)
    check_result(out, model, 8, missing=(2, 4, 6))


def test_a_file_that_changes_during_the_job_is_an_error(folder, model, tmp_path):
    corpus = find_corpus(folder, TEXT)
    shard_worker = ShardWorker(worker_config(corpus, model, tmp_path / "out"))
    os.utime(folder / "b.parquet", ns=(1, 1))
    result = shard_worker(asdict(corpus.shards(1000)[1]))
    assert_mentions(result["problem"], "b.parquet", "changed")
    assert not list((tmp_path / "out").iterdir())


def test_an_existing_part_is_not_computed_again(folder, model, tmp_path):
    corpus = find_corpus(folder, TEXT)
    shard_worker = ShardWorker(worker_config(corpus, model, tmp_path / "out"))
    shard = corpus.shards(1000)[3]
    shard_worker(asdict(shard))
    path = tmp_path / "out" / part_name(3)
    os.utime(path, ns=(5, 5))
    result = shard_worker(asdict(shard))
    assert result["rows"] == 500
    assert path.stat().st_mtime_ns == 5


def test_a_shard_that_kills_every_worker_is_an_error(folder, model, tmp_path):
    corpus = find_corpus(folder, TEXT)
    out = tmp_path / "out"
    shard_worker = ShardWorker(worker_config(corpus, model, out))
    for death in range(worker.MAX_WORKER_DEATHS):
        (out / f".{part_name(1)}.{death}.part").touch()
    result = shard_worker(asdict(corpus.shards(1000)[1]))
    assert_mentions(result["problem"], "5 workers", 1, 1000)
    assert not shard_worker(asdict(corpus.shards(1000)[2]))["problem"]


def test_a_full_disk_leaves_no_part_behind(folder, model, tmp_path):
    corpus = find_corpus(folder, TEXT)
    shard_worker = ShardWorker(worker_config(corpus, model, tmp_path / "out"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        result = shard_worker(asdict(corpus.shards(1000)[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert_mentions(result["problem"], "part-0000001.parquet", "File too large")
    assert not list((tmp_path / "out").iterdir())


def test_rows_are_counted_before_the_success_marker_is_written(folder, model, tmp_path):
    run_locally(folder, model, tmp_path / "out")
    shards = find_corpus(folder, TEXT).shards(1000)
    path = tmp_path / "out" / part_name(1)
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(DataError, match=mentions(path, 999, 1000)):
        finish_output(tmp_path / "out", shards)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=mentions(path, "Parquet")):
        finish_output(tmp_path / "out", shards)
    path.unlink()
    assert [shard.number for shard in missing_shards(tmp_path / "out", shards)] == [1]
    with pytest.raises(DataError, match=mentions(path, "machines")):
        finish_output(tmp_path / "out", shards)


def test_an_output_folder_in_the_input_or_with_other_content_is_refused(
    folder, tmp_path
):
    corpus = find_corpus(folder, TEXT)
    for inside in (folder, folder / "out"):
        with pytest.raises(SettingsError, match=mentions(inside, folder)):
            check_output_folder(inside, corpus)
    check_output_folder(folder / "out", find_corpus(folder / "b.parquet", TEXT))
    (tmp_path / "mine").mkdir()
    check_output_folder(tmp_path / "mine", corpus)
    (tmp_path / "mine/thesis.txt").touch()
    with pytest.raises(SettingsError, match=mentions(tmp_path / "mine", "thesis.txt")):
        check_output_folder(tmp_path / "mine", corpus)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_parts_of_different_jobs_are_never_mixed(folder, model, tmp_path):
    out = tmp_path / "out"
    out.mkdir()

    def start(model=model, rows=1000, skip_invalid=False, **settings):
        mapper = TextMapper(model, **settings)
        corpus = find_corpus(folder, Columns(mapper.text, None, None))
        open_output(out, build_manifest(corpus, mapper, rows, skip_invalid))

    start(skip_invalid=True)
    start()  # nothing was computed yet, so there is no part to mix with
    (out / "part-0000000.parquet").touch()
    start()  # the same job resumes
    with pytest.raises(SettingsError, match=mentions("shard_rows", 1000, 500)):
        start(rows=500)
    with pytest.raises(SettingsError, match=mentions("task", "'predict'", "'encode'")):
        start(task="encode")
    with pytest.raises(SettingsError, match=mentions("skip_invalid", False, True)):
        start(skip_invalid=True)
    other = save_model(tmp_path / "other")
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    with pytest.raises(SettingsError, match=mentions(out, "model")):
        start(model=other)
    os.utime(folder / "b.parquet", ns=(1, 1))
    with pytest.raises(SettingsError, match=mentions(out, "b.parquet", "changed")):
        start()
    (folder / "b.parquet").rename(folder / "d.parquet")
    with pytest.raises(SettingsError, match=mentions(out, "d.parquet")):
        start()
    (folder / "d.parquet").unlink()
    with pytest.raises(SettingsError, match=mentions(out, "b.parquet")):
        start()


def test_a_job_started_with_format_1_resumes(folder, model, tmp_path):
    out = tmp_path / "out"
    assert run_locally(folder, model, out) == (3401, 0)
    corpus = find_corpus(folder, TEXT)
    manifest = build_manifest(corpus, TextMapper(model), 1000, False)
    settings = dict(manifest["settings"])
    for old, new in (
        ("piece_rows", "shard_rows"),
        ("skip_bad", "skip_invalid"),
        ("tokenised", "pretokenized"),
    ):
        settings[old] = settings.pop(new)
    old_manifest = manifest | {"format": "perron-corpus-1", "settings": settings}
    (out / "_perron.json").write_text(json.dumps(old_manifest))
    part = out / part_name(0)
    table = pq.read_table(part).slice(1)  # the first row was skipped
    metadata = (table.schema.metadata or {}) | {b"perron.left_out": b"1"}
    pq.write_table(table.replace_schema_metadata(metadata), part)
    open_output(out, manifest)
    assert finish_output(out, corpus.shards(1000)) == (3400, 1)
    settings["tokenised"] = True
    (out / "_perron.json").write_text(json.dumps(old_manifest))
    with pytest.raises(SettingsError, match=mentions("pretokenized", True, False)):
        open_output(out, manifest)
