"""Pieces of a corpus and their parts, in one process."""

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
    check_place,
    claim,
    close_folder,
    find_corpus,
    manifest_of,
    missing,
    part_name,
)
from perron.integrations.corpora.worker import PieceWorker, WorkerConfig
from perron.text.formats import Columns

TEXT = Columns("text", None, None)
OTHER_KINDS = [pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
SIZES = {"b.parquet": 2500, "a/z.parquet": 0, "a/c.parquet": 900, "c.parquet": 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("models") / "text")


@pytest.fixture
def corpus(tmp_path):
    # In the order of their paths, which is the order of their rows.
    sizes = dict(sorted(SIZES.items()))
    return write_corpus(tmp_path / "corpus", sizes)


def work_of(found, model, out, skip_invalid=False):
    mapper = TextMapper(model)
    out.mkdir()
    schema = pa.schema([*found.schema, *mapper.new_fields])
    return WorkerConfig(mapper, found.root, out, schema, skip_invalid)


def run_here(path, model, out, piece_rows=1000, skip_invalid=False):
    """Do what the engine does, without Ray; return the first problem, or counts."""
    found = find_corpus(path, TEXT)
    at_work = PieceWorker(work_of(found, model, out, skip_invalid))
    pieces = found.pieces(piece_rows)
    for piece in reversed(pieces):
        answer = at_work(asdict(piece))
        if answer["problem"]:
            return answer["problem"]
    return close_folder(out, pieces)


def test_pieces_part_every_row_of_the_corpus(corpus):
    found = find_corpus(corpus, TEXT)
    assert [file.name for file in found.files] == sorted(SIZES)
    pieces = found.pieces(1000)
    assert [(piece.file, piece.start, piece.rows) for piece in pieces] == [
        ("a/c.parquet", 0, 900),
        ("b.parquet", 0, 1000),
        ("b.parquet", 1000, 1000),
        ("b.parquet", 2000, 500),
        ("c.parquet", 0, 1),
    ]
    assert [piece.number for piece in pieces] == list(range(5))


@pytest.mark.parametrize(("piece_rows", "batch"), [(300, 7000), (1000, 250)])
def test_parts_have_every_row_once_and_in_order(
    piece_rows, batch, corpus, model, tmp_path, monkeypatch
):
    monkeypatch.setattr(worker, "BATCH", batch)
    counts = run_here(corpus, model, tmp_path / "out", piece_rows)
    assert counts == (3401, 0)
    check_result(tmp_path / "out", model, 3401)
    told = json.loads((tmp_path / "out/_SUCCESS").read_text())
    assert told["rows"] == 3401


def test_a_corpus_without_rows_has_a_part_with_the_columns(model, tmp_path):
    write_corpus(tmp_path / "corpus", {"a.parquet": 0, "b.parquet": 0})
    assert run_here(tmp_path / "corpus", model, tmp_path / "out") == (0, 0)
    table = pq.read_table(tmp_path / "out")
    assert table.column_names == ["id", "text", "label", "probabilities"]
    assert len(table) == 0


def test_hidden_files_are_passed_over(corpus):
    (corpus / "_temporary").mkdir()
    for name in ("_temporary/x.parquet", ".hidden_dim.parquet", "notes.txt"):
        (corpus / name).write_bytes(b"no Parquet")
    assert len(find_corpus(corpus, TEXT).files) == 4


def test_what_is_no_corpus_is_refused(corpus, tmp_path):
    with pytest.raises(DataError, match=mentions(tmp_path / "nothing")):
        find_corpus(tmp_path / "nothing", TEXT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=mentions(tmp_path / "empty", "*.parquet")):
        find_corpus(tmp_path / "empty", TEXT)
    with pytest.raises(
        DataError, match=mentions("c.parquet", "'review'", "id", "text")
    ):
        find_corpus(corpus, Columns("review", None, None))
    with pytest.raises(DataError, match=mentions("'id'", "int64")):
        find_corpus(corpus, Columns("id", None, None))
    (corpus / "d.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(DataError, match=mentions("d.parquet", "Parquet")):
        find_corpus(corpus, TEXT)


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ({"text": ["x"]}, ["'id'"]),
        ({"id": [1], "text": ["x"], "more": [1]}, ["'more'"]),
        ({"id": ["1"], "text": ["x"]}, ["'id'", "string", "int64"]),
        ({"text": ["x"], "id": [1]}, ["order"]),
    ],
)
def test_files_with_other_columns_are_refused(columns, difference, corpus):
    pq.write_table(pa.table(columns), corpus / "d.parquet")
    with pytest.raises(DataError, match=mentions("d.parquet", *difference)):
        find_corpus(corpus, TEXT)


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_texts_of_other_arrow_types_are_texts(kind, model, tmp_path):
    texts = pa.array(["good film", "bad", "good film"]).cast(kind)
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"id": [0, 1, 2], "text": texts}), path)
    assert run_here(path, model, tmp_path / "out") == (3, 0)
    check_result(tmp_path / "out", model, 3)


@pytest.fixture
def with_bad_rows(tmp_path):
    """A file in which row 3 has no text, row 5 a NUL byte and row 7 no UTF-8."""
    texts = [b"good", b"bad", None, b"film", b"a\0b", b"film", b"\xff", b"it"]
    column = pa.array(texts, pa.binary())
    column = pa.StringArray.from_buffers(
        len(texts), column.buffers()[1], column.buffers()[2], column.buffers()[0]
    )
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"id": range(8), "text": column}), path)
    return path


def test_a_row_without_a_text_is_named_by_file_and_row(with_bad_rows, model, tmp_path):
    problem = run_here(with_bad_rows, model, tmp_path / "out")
    assert_mentions(problem, "bad.parquet, line 3", "text", "--skip-invalid")
    assert not list((tmp_path / "out").iterdir())
    problem = run_here(with_bad_rows, model, tmp_path / "two", piece_rows=3)
    assert_mentions(problem, "bad.parquet, line 7", "text", "UTF-8")


def test_bad_rows_are_left_out_and_counted(with_bad_rows, model, tmp_path):
    out = tmp_path / "out"
    assert run_here(with_bad_rows, model, out, 5, skip_invalid=True) == (5, 3)
    check_result(out, model, 8, missing=(2, 4, 6))


def test_a_file_that_is_changed_meanwhile_is_noticed(corpus, model, tmp_path):
    found = find_corpus(corpus, TEXT)
    at_work = PieceWorker(work_of(found, model, tmp_path / "out"))
    os.utime(corpus / "b.parquet", ns=(1, 1))
    answer = at_work(asdict(found.pieces(1000)[1]))
    assert_mentions(answer["problem"], "b.parquet", "changed")
    assert not list((tmp_path / "out").iterdir())


def test_a_part_that_is_there_is_not_computed_again(corpus, model, tmp_path):
    found = find_corpus(corpus, TEXT)
    at_work = PieceWorker(work_of(found, model, tmp_path / "out"))
    piece = found.pieces(1000)[3]
    at_work(asdict(piece))
    path = tmp_path / "out" / part_name(3)
    os.utime(path, ns=(5, 5))
    answer = at_work(asdict(piece))
    assert answer["rows"] == 500
    assert path.stat().st_mtime_ns == 5


def test_a_piece_that_ends_every_worker_is_given_up(corpus, model, tmp_path):
    found = find_corpus(corpus, TEXT)
    out = tmp_path / "out"
    at_work = PieceWorker(work_of(found, model, out))
    for death in range(worker.MOST_DEATHS):
        (out / f".{part_name(1)}.{death}.part").touch()
    answer = at_work(asdict(found.pieces(1000)[1]))
    assert_mentions(answer["problem"], "5 workers", 1, 1000)
    assert not at_work(asdict(found.pieces(1000)[2]))["problem"]


def test_a_full_disk_leaves_no_part(corpus, model, tmp_path):
    found = find_corpus(corpus, TEXT)
    at_work = PieceWorker(work_of(found, model, tmp_path / "out"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        answer = at_work(asdict(found.pieces(1000)[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert_mentions(answer["problem"], "part-0000001.parquet", "File too large")
    assert not list((tmp_path / "out").iterdir())


def test_rows_are_counted_before_the_folder_is_called_finished(corpus, model, tmp_path):
    run_here(corpus, model, tmp_path / "out")
    pieces = find_corpus(corpus, TEXT).pieces(1000)
    path = tmp_path / "out" / part_name(1)
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(DataError, match=mentions(path, 999, 1000)):
        close_folder(tmp_path / "out", pieces)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=mentions(path, "Parquet")):
        close_folder(tmp_path / "out", pieces)
    path.unlink()
    assert [piece.number for piece in missing(tmp_path / "out", pieces)] == [1]
    with pytest.raises(DataError, match=mentions(path, "machines")):
        close_folder(tmp_path / "out", pieces)


def test_a_folder_that_is_read_or_holds_something_else_is_refused(corpus, tmp_path):
    found = find_corpus(corpus, TEXT)
    for inside in (corpus, corpus / "out"):
        with pytest.raises(SettingsError, match=mentions(inside, corpus)):
            check_place(inside, found)
    check_place(corpus / "out", find_corpus(corpus / "b.parquet", TEXT))
    (tmp_path / "mine").mkdir()
    check_place(tmp_path / "mine", found)
    (tmp_path / "mine/thesis.txt").touch()
    with pytest.raises(SettingsError, match=mentions(tmp_path / "mine", "thesis.txt")):
        check_place(tmp_path / "mine", found)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_parts_of_another_run_are_never_mixed_in(corpus, model, tmp_path):
    out = tmp_path / "out"
    out.mkdir()

    def begin(model=model, rows=1000, skip_invalid=False, **settings):
        mapper = TextMapper(model, **settings)
        found = find_corpus(corpus, Columns(mapper.text, None, None))
        claim(out, manifest_of(found, mapper, rows, skip_invalid))

    begin(skip_invalid=True)
    begin()  # nothing was computed yet: no part is of another run
    (out / "part-0000000.parquet").touch()
    begin()  # the same goes on
    with pytest.raises(SettingsError, match=mentions("piece_rows", 1000, 500)):
        begin(rows=500)
    with pytest.raises(SettingsError, match=mentions("task", "'predict'", "'encode'")):
        begin(task="encode")
    with pytest.raises(SettingsError, match=mentions("skip_invalid", False, True)):
        begin(skip_invalid=True)
    other = save_model(tmp_path / "other")
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    with pytest.raises(SettingsError, match=mentions(out, "model")):
        begin(model=other)
    os.utime(corpus / "b.parquet", ns=(1, 1))
    with pytest.raises(SettingsError, match=mentions(out, "b.parquet", "changed")):
        begin()
    (corpus / "b.parquet").rename(corpus / "d.parquet")
    with pytest.raises(SettingsError, match=mentions(out, "d.parquet")):
        begin()
    (corpus / "d.parquet").unlink()
    with pytest.raises(SettingsError, match=mentions(out, "b.parquet")):
        begin()
