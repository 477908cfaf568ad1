"""Tests of the format registry, encodings and custom formats."""

import codecs
import gzip
import importlib
import io
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from perron.errors import DataError, InvalidRows, SettingsError
from perron.text.datasets import load_data, read_texts
from perron.text.formats import DataFile, Format, Row, formats, infer_format
from perron.text.formats.base import Lines
from perron.text.settings import DataSettings

DOCS = Path(__file__).parents[2] / "docs" / "training.md"


def test_every_format_is_documented_with_its_extensions():
    text = DOCS.read_text(encoding="utf-8")
    table = text.partition("| `--data-format` |")[2].partition("\n\n")[0]
    documented = {}
    for line in table.splitlines()[2:]:
        name, extensions, _ = (cell.strip() for cell in line.strip("|").split("|", 2))
        documented[name.strip("`")] = re.findall(r"`(.*?)`", extensions)
    built_in = {
        name: list(format.extensions)
        for name, format in formats.items()
        if format.__module__.startswith("perron.")
    }
    assert documented == built_in


def test_every_format_has_a_summary():
    assert all(format.summary for format in formats.values())


def test_the_error_for_an_unknown_extension_lists_all_formats():
    with pytest.raises(SettingsError, match=r"reviews.xlsx.*--data-format") as caught:
        infer_format("reviews.xlsx")
    for name, format in formats.items():
        assert " ".join([name, *format.extensions]) in str(caught.value)


def test_the_error_for_an_unknown_format_lists_all_formats():
    with pytest.raises(ValidationError, match=r"(?s)xml.*--plugin") as caught:
        DataSettings(format="xml", train="a")
    (problem,) = caught.value.errors()
    assert problem["loc"] == ("format",)
    assert all(name in problem["msg"] for name in formats)


@pytest.fixture
def temporary_formats(monkeypatch):
    """Unregisters formats that a test defines."""
    monkeypatch.setattr(formats, "_items", dict(formats._items))


@pytest.fixture
def hashtags(temporary_formats):
    class Hashtags(Format):
        """A text followed by its label as a hashtag."""

        name = "hashtags"
        summary = "text #label"
        extensions = (".tags",)
        drop_labels = ("skip",)

        def read(self, file: DataFile):
            for number, line in file.lines():
                text, _, label = line.rpartition("#")
                if not text:
                    file.report(number, "no hashtag")
                    continue
                yield Row(number, text.strip(), label)

        def labels(self, options):
            return ("ham", "spam")

    return Hashtags


def test_a_custom_format_is_selected_by_name_and_by_extension(hashtags, write):
    content = "".join(f"text {i} #{'spam' if i % 2 else 'ham'}\n" for i in range(20))
    path = str(write("mails.tags", content + "dropped #skip\n"))
    assert infer_format(path) == "hashtags"
    splits = load_data(DataSettings(format="hashtags", train=path))
    assert splits.labels == ("ham", "spam")
    assert [len(splits.train), len(splits.dev), len(splits.test)] == [16, 2, 2]
    assert splits.dropped == {path: 1}
    assert [row.text for row in read_texts(path)][:2] == ["text 0", "text 1"]
    packed = write("mails.tags.gz", gzip.compress(content.encode()))
    assert len(list(read_texts(packed))) == 20


def test_invalid_rows_of_a_custom_format_can_be_skipped(hashtags, write):
    path = str(write("mails.tags", "a #ham\nbad\nb #spam\nc #ham\nd #spam\n"))
    with pytest.raises(DataError, match="line 2: no hashtag"):
        load_data(DataSettings(format="hashtags", train=path))
    settings = DataSettings(format="hashtags", train=path, dev=path, skip_invalid=True)
    assert load_data(settings).skipped == {path: 1}


def test_an_extension_of_two_formats_is_ambiguous(temporary_formats):
    class Other(Format):
        name = "other"
        extensions = (".csv",)

        def read(self, file):
            return iter(())

    with pytest.raises(SettingsError, match=r"--data-format.*csv or other"):
        infer_format("a.csv")


def test_a_changed_reader_invalidates_the_cache(temporary_formats, tmp_path, write):
    code = """
from perron.text.formats import Format, Row

class Words(Format):
    name = "words"
    def read(self, file):
        for number, line in file.lines():
            yield Row(number, line.{case}(), line[0])
"""
    data = str(write("data", "".join(f"{c} text\n" for c in "abab" * 5)))
    module = write("format_under_test.py", code.format(case="lower"))
    sys.path.insert(0, str(tmp_path))
    try:
        loaded = importlib.import_module("format_under_test")
        settings = DataSettings(format="words", train=data, dev=data)
        assert load_data(settings).train[0]["text"] == "a text"
        module.write_text(code.format(case="swapcase"))  # also changes the file size
        importlib.reload(loaded)
        assert load_data(settings).train[0]["text"] == "A TEXT"
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("format_under_test", None)


GERMAN = "text,label\nschön und gut,1\nhäßlich,0\n"


@pytest.mark.parametrize(
    "encoding", ["cp1252", "utf-16", "utf-16-le", "utf-32", "cp500"]
)
def test_files_in_other_encodings_are_read(write, encoding):
    path = str(write("a.csv", GERMAN.encode(encoding)))
    settings = DataSettings(format="csv", train=path, dev=path, encoding=encoding)
    assert load_data(settings).train["text"][:] == ["schön und gut", "häßlich"]


def test_the_encoding_is_part_of_the_cache_key(write):
    path = str(write("a.csv", GERMAN.encode()))
    texts = []
    for encoding in ("utf-8", "latin-1"):
        settings = DataSettings(format="csv", train=path, dev=path, encoding=encoding)
        texts.append(load_data(settings).train["text"][0])
    assert texts == ["schön und gut", "schÃ¶n und gut"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
@pytest.mark.parametrize(
    ("raw", "byte", "guess"),
    [
        ("schön".encode("cp1252"), "0xf6", "cp1252"),
        (b"sch\x81n", "0x81", "latin-1"),  # undefined in cp1252
    ],
)
def test_the_error_for_invalid_utf8_suggests_an_encoding(write, name, raw, byte, guess):
    head = {"a.csv": b"text\n", "a.tsv": b"text\n"}.get(name, b"")
    quoted = b'{"text": "%s"}' % raw if name == "a.jsonl" else raw
    path = write(name, head + quoted + b"\n")
    position = quoted.index(raw) + 4
    expected = f"not valid UTF-8: byte {byte} at position {position} .*"
    expected += rf"--encoding {guess}\."
    with pytest.raises(DataError, match=expected) as caught:
        list(read_texts(path))
    assert caught.value.line == 1 + len(head.splitlines())
    (row,) = read_texts(path, encoding=guess)
    assert row.text == raw.decode(guess)


@pytest.mark.parametrize("bom", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_utf16_is_detected_by_its_byte_order_mark(write, bom):
    encoding = "utf-16-le" if bom == codecs.BOM_UTF16_LE else "utf-16-be"
    path = write("a.csv", bom + "text\nschön\n".encode(encoding))
    with pytest.raises(DataError, match=r"line 1: .*--encoding utf-16$"):
        list(read_texts(path))
    (row,) = read_texts(path, encoding="utf-16")
    assert row.text == "schön"


def test_utf8_is_suggested_if_another_encoding_is_wrong(write):
    path = write("a.txt", "schön\n".encode())
    with pytest.raises(DataError, match=r"not valid ASCII.*--encoding utf-8\."):
        list(read_texts(path, encoding="ascii"))


def test_the_error_for_invalid_utf16_has_the_line(write):
    path = write("a.txt", "gut\n".encode("utf-16") + b"\x00")
    with pytest.raises(DataError, match="line 2: not valid UTF-16"):
        list(read_texts(path, encoding="utf-16", invalid_rows=InvalidRows(skip=True)))


@pytest.mark.parametrize("name", ["utf9", "base64", "", "a\0b", "undefined"])
def test_an_unknown_encoding_is_rejected(name, write):
    with pytest.raises(ValidationError, match=re.escape(f"got {name!r}")):
        DataSettings(format="csv", train="a.csv", encoding=name)
    with pytest.raises(SettingsError, match="encoding"):
        read_texts(write("a.txt", "x"), encoding=name)


def test_binary_formats_have_no_encoding():
    with pytest.raises(ValidationError, match=r"encoding does not apply to .*parquet"):
        DataSettings(format="parquet", train="a.parquet", encoding="cp1252")


def test_only_newlines_end_a_line():
    raw = "a\u2028b\x0cc\r\nd\re\n\nf".encode()
    lines = Lines(io.BytesIO(codecs.BOM_UTF8 + raw), "-")
    assert list(lines) == ["a\u2028b\x0cc", "d\re", "", "f"]
    wide = Lines(io.BytesIO(raw.decode().encode("utf-16")), "-", "utf-16")
    assert list(wide) == ["a\u2028b\x0cc", "d\re", "", "f"]


COLUMNS = {"a.csv": "id,text\n7,x\n8,y\n", "a.tsv": "id\ttext\n7\tx\n8\ty\n"}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_keep_columns_keeps_all_columns(name, write, tmp_path):
    if name == "a.parquet":
        pq.write_table(pa.table({"id": [7, 8], "text": ["x", "y"]}), tmp_path / name)
    else:
        objects = '{"id": 7, "text": "x"}\n{"id": 8, "text": "y"}\n'
        write(name, COLUMNS.get(name, objects))
    rows = list(read_texts(tmp_path / name, keep_columns=True))
    ids = ["7", "8"] if name in COLUMNS else [7, 8]
    assert [row.columns for row in rows] == [
        {"id": ids[0], "text": "x"},
        {"id": ids[1], "text": "y"},
    ]
    assert all(row.columns is None for row in read_texts(tmp_path / name))


def test_kept_columns_must_have_unique_names(write):
    path = write("a.csv", "id,text,id\n1,x,2\n")
    assert len(list(read_texts(path))) == 1
    with pytest.raises(DataError, match=r"unique.* 2 columns are named 'id'"):
        list(read_texts(path, keep_columns=True))


def test_invalid_utf8_in_parquet_is_an_invalid_row(tmp_path):
    raw = pa.array([b"fine", b"\xff", b"good"]).view(pa.string())
    pq.write_table(pa.table({"text": raw}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="line 2: not valid UTF-8"):
        list(read_texts(tmp_path / "a.parquet"))
    invalid_rows = InvalidRows(skip=True)
    rows = list(read_texts(tmp_path / "a.parquet", invalid_rows=invalid_rows))
    assert [row.text for row in rows] == ["fine", "good"]
    assert invalid_rows.skipped.total() == 1
