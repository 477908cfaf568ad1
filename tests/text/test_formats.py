"""Formats as objects: the registry, encodings, and formats of the user's own."""

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
from perron.text.formats import DataFile, Format, Row, format_of, formats
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
    own = {
        name: list(format.extensions)
        for name, format in formats.items()
        if format.__module__.startswith("perron.")
    }
    assert documented == own


def test_every_format_has_a_summary():
    assert all(format.summary for format in formats.values())


def test_an_unknown_extension_is_refused_with_all_formats():
    with pytest.raises(SettingsError, match=r"reviews.xlsx.*--data-format") as caught:
        format_of("reviews.xlsx")
    for name, format in formats.items():
        assert " ".join([name, *format.extensions]) in str(caught.value)


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(ValidationError, match=r"(?s)xml.*--plugin") as caught:
        DataSettings(format="xml", train="a")
    (problem,) = caught.value.errors()
    assert problem["loc"] == ("format",)
    assert all(name in problem["msg"] for name in formats)


@pytest.fixture
def own_formats(monkeypatch):
    """Formats that a test defines are forgotten at its end."""
    monkeypatch.setattr(formats, "_items", dict(formats._items))


@pytest.fixture
def hashtags(own_formats):
    class Hashtags(Format):
        """A text and, as its label, the hashtag that follows."""

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


def test_a_format_of_your_own_is_chosen_by_name_and_by_extension(hashtags, write):
    content = "".join(f"text {i} #{'spam' if i % 2 else 'ham'}\n" for i in range(20))
    path = str(write("mails.tags", content + "left out #skip\n"))
    assert format_of(path) == "hashtags"
    splits = load_data(DataSettings(format="hashtags", train=path))
    assert splits.labels == ("ham", "spam")
    assert [len(splits.train), len(splits.dev), len(splits.test)] == [16, 2, 2]
    assert splits.dropped == {path: 1}
    assert [row.text for row in read_texts(path)][:2] == ["text 0", "text 1"]
    packed = write("mails.tags.gz", gzip.compress(content.encode()))
    assert len(list(read_texts(packed))) == 20


def test_bad_rows_of_a_format_of_your_own_are_skipped_if_asked(hashtags, write):
    path = str(write("mails.tags", "a #ham\nbad\nb #spam\nc #ham\nd #spam\n"))
    with pytest.raises(DataError, match="line 2: no hashtag"):
        load_data(DataSettings(format="hashtags", train=path))
    settings = DataSettings(format="hashtags", train=path, dev=path, skip_invalid=True)
    assert load_data(settings).skipped == {path: 1}


def test_two_formats_with_one_extension_are_told_apart_by_name(own_formats):
    class Other(Format):
        name = "other"
        extensions = (".csv",)

        def read(self, file):
            return iter(())

    with pytest.raises(SettingsError, match=r"csv and other.*--data-format"):
        format_of("a.csv")


def test_a_changed_reader_is_not_taken_from_the_cache(own_formats, tmp_path, write):
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
        module.write_text(code.format(case="swapcase"))  # another size, if not date
        importlib.reload(loaded)
        assert load_data(settings).train[0]["text"] == "A TEXT"
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("format_under_test", None)


GERMAN = "text,label\nschön und gut,1\nhäßlich,0\n"


@pytest.mark.parametrize(
    "encoding", ["cp1252", "utf-16", "utf-16-le", "utf-32", "cp500"]
)
def test_files_of_other_encodings_are_read(write, encoding):
    path = str(write("a.csv", GERMAN.encode(encoding)))
    settings = DataSettings(format="csv", train=path, dev=path, encoding=encoding)
    assert load_data(settings).train["text"][:] == ["schön und gut", "häßlich"]


def test_the_encoding_is_part_of_the_cache_key(write):
    path = str(write("a.csv", GERMAN.encode()))
    read = []
    for encoding in ("utf-8", "latin-1"):
        given = DataSettings(format="csv", train=path, dev=path, encoding=encoding)
        read.append(load_data(given).train["text"][0])
    assert read == ["schön und gut", "schÃ¶n und gut"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
@pytest.mark.parametrize(
    ("raw", "byte", "guess"),
    [
        ("schön".encode("cp1252"), "0xf6", "cp1252"),
        (b"sch\x81n", "0x81", "latin-1"),  # cp1252 has no character there
    ],
)
def test_what_is_not_utf8_is_named_with_an_encoding_that_reads_it(
    write, name, raw, byte, guess
):
    head = {"a.csv": b"text\n", "a.tsv": b"text\n"}.get(name, b"")
    quoted = b'{"text": "%s"}' % raw if name == "a.jsonl" else raw
    path = write(name, head + quoted + b"\n")
    place = quoted.index(raw) + 4
    expected = f"not UTF-8: byte {byte} at position {place} .*--encoding {guess} "
    with pytest.raises(DataError, match=expected) as caught:
        list(read_texts(path))
    assert caught.value.line == 1 + len(head.splitlines())
    (row,) = read_texts(path, encoding=guess)
    assert row.text == raw.decode(guess)


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_utf16_is_known_by_its_first_bytes(write, mark):
    encoding = "utf-16-le" if mark == codecs.BOM_UTF16_LE else "utf-16-be"
    path = write("a.csv", mark + "text\nschön\n".encode(encoding))
    with pytest.raises(DataError, match=r"line 1: .*--encoding utf-16 "):
        list(read_texts(path))
    (row,) = read_texts(path, encoding="utf-16")
    assert row.text == "schön"


def test_utf8_is_suggested_where_another_encoding_was_wrong(write):
    path = write("a.txt", "schön\n".encode())
    with pytest.raises(DataError, match=r"not ASCII.*--encoding utf-8 "):
        list(read_texts(path, encoding="ascii"))


def test_broken_utf16_is_an_error_with_its_line(write):
    path = write("a.txt", "gut\n".encode("utf-16") + b"\x00")
    with pytest.raises(DataError, match="line 2: not UTF-16"):
        list(read_texts(path, encoding="utf-16", bad=InvalidRows(skip=True)))


@pytest.mark.parametrize("name", ["utf9", "base64", "", "a\0b", "undefined"])
def test_an_encoding_that_is_none_is_refused(name, write):
    with pytest.raises(ValidationError, match=re.escape(f"got {name!r}")):
        DataSettings(format="csv", train="a.csv", encoding=name)
    with pytest.raises(SettingsError, match="encoding"):
        read_texts(write("a.txt", "x"), encoding=name)


def test_formats_without_text_files_have_no_encoding():
    with pytest.raises(ValidationError, match=r"encoding does not apply to .*parquet"):
        DataSettings(format="parquet", train="a.parquet", encoding="cp1252")


def test_lines_are_those_of_the_file_whatever_unicode_says():
    raw = "a\u2028b\x0cc\r\nd\re\n\nf".encode()
    lines = Lines(io.BytesIO(codecs.BOM_UTF8 + raw), "-")
    assert list(lines) == ["a\u2028b\x0cc", "d\re", "", "f"]
    wide = Lines(io.BytesIO(raw.decode().encode("utf-16")), "-", "utf-16")
    assert list(wide) == ["a\u2028b\x0cc", "d\re", "", "f"]


COLUMNS = {"a.csv": "id,text\n7,x\n8,y\n", "a.tsv": "id\ttext\n7\tx\n8\ty\n"}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_all_columns_are_kept_if_asked(name, write, tmp_path):
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


def test_kept_columns_must_differ(write):
    path = write("a.csv", "id,text,id\n1,x,2\n")
    assert len(list(read_texts(path))) == 1
    with pytest.raises(DataError, match="2 columns named 'id'"):
        list(read_texts(path, keep_columns=True))


def test_text_of_parquet_that_is_not_utf8_is_a_bad_row(tmp_path):
    raw = pa.array([b"fine", b"\xff", b"good"]).view(pa.string())
    pq.write_table(pa.table({"text": raw}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="line 2: not UTF-8"):
        list(read_texts(tmp_path / "a.parquet"))
    bad = InvalidRows(skip=True)
    rows = list(read_texts(tmp_path / "a.parquet", bad=bad))
    assert [row.text for row in rows] == ["fine", "good"]
    assert bad.skipped.total() == 1
