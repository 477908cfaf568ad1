import gzip
import json
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from perron_tests.errors import mentions

from perron.errors import DataError, InvalidRows
from perron.text.formats import DataFile, get_format
from perron.text.formats.rows import usable_rows
from perron.text.settings import DataSettings

PAIR = {"text": "a", "text_pair": "b"}


class Plain(NamedTuple):
    line: int
    text: str
    label: str
    pair: str | None


def read(path, format, skip=False, **options):
    """Return the rows that can be used for training, and the invalid rows."""
    invalid_rows = InvalidRows(skip)
    settings = DataSettings(format=format, train=str(path), **options)
    reader = get_format(format)
    values = {name: getattr(settings, name) for name in reader.options}
    file = DataFile(
        str(path), invalid_rows, settings.columns, settings.encoding, values
    )
    rows = usable_rows(reader.read(reader.open(file)), path, invalid_rows)
    return [Plain(*row[:4]) for row in rows], invalid_rows


def jsonl(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


# Format, content whose second row of three is invalid, its line, and the message.
GOOD_TREE = "(3 (2 A) (4 (3 fine) (2 day)))"
HEADER = "text,label\n"
INVALID = {
    "tree not closed": (
        "sst",
        f"{GOOD_TREE}\n(3 (2 A) (2 day)\n{GOOD_TREE}\n",
        2,
        "tree.*parentheses: 1",
    ),
    "tree closed twice": (
        "sst",
        f"{GOOD_TREE}\n(3 day))\n{GOOD_TREE}\n",
        2,
        "tree.*last parenthesis",
    ),
    "tree label": (
        "sst",
        f"{GOOD_TREE}\n\n(5 day)\n{GOOD_TREE}\n",
        3,
        "tree.*label.*0 to 4.*'5'",
    ),
    "tree without words": (
        "sst",
        f"{GOOD_TREE}\n(3 (2 ))\n{GOOD_TREE}\n",
        2,
        "tree.*parentheses.*word",
    ),
    "not a tree": (
        "sst",
        f"{GOOD_TREE}\nday\n{GOOD_TREE}\n",
        2,
        "tree.*begin.*parenthesis",
    ),
    "snli label": (
        "snli",
        jsonl(
            {"gold_label": "neutral", "sentence1": "a", "sentence2": "b"},
            {"gold_label": "maybe", "sentence1": "a", "sentence2": "b"},
            {"gold_label": "entailment", "sentence1": "a", "sentence2": "b"},
        ),
        2,
        "gold_label.*'maybe'",
    ),
    "stars fields": (
        "stars",
        "u\t\tp\t\t5\t\tgood\nu\t\tp\t\tgood\nu\t\tp\t\t1\t\tbad\n",
        2,
        "user, product, rating and text.*3 fields",
    ),
    "stars rating": (
        "stars",
        "u\t\tp\t\t5\t\tgood\nu\t\tp\t\tfive\t\tgood\nu\t\tp\t\t1\t\tbad\n",
        2,
        "rating.*'five'",
    ),
    "csv field count": ("csv", HEADER + "a,0\nb,0,1\nc,1\n", 3, r"\b2\b.*3 fields"),
    "csv empty text": ("csv", HEADER + 'a,0\n" ",0\nc,1\n', 3, "empty text"),
    "csv empty label": ("csv", HEADER + "a,0\nb,\nc,1\n", 3, "label"),
    "csv after a text of three lines": (
        "csv",
        HEADER + '"a\n\nb",0\n"c\n",1,2\nd,1\n',
        5,
        "3 fields",
    ),
    "csv quote": ("csv", HEADER + 'a,0\n"b"c,0\nd,1\n', 3, "CSV"),
    "csv not UTF-8": (
        "csv",
        HEADER.encode() + b"a,0\ncaf\xe9,0\nd,1\n",
        3,
        "UTF-8.*0xe9.*position 4",
    ),
    "csv not UTF-8 in the second line of a text": (
        "csv",
        HEADER.encode() + b'a,0\n"b\ncaf\xe9",0\nd,1\n',
        3,
        "UTF-8",
    ),
    "csv NUL": ("csv", HEADER + "a,0\nb\0b,0\nd,1\n", 3, "NUL"),
    "tsv field count": ("tsv", "text\tlabel\na\t0\nb\nc\t1\n", 3, "1 fields"),
    "JSON": (
        "jsonl",
        '{"text": "a", "label": 0}\n{"text"\n{"text": "b", "label": 1}',
        2,
        "JSON",
    ),
    "JSON too deep": (
        "jsonl",
        '{"text": "a", "label": 0}\n' + "[" * 200_000 + '\n{"text":"b","label":1}',
        2,
        "JSON",
    ),
    "JSON list": (
        "jsonl",
        '{"text": "a", "label": 0}\n[1]\n{"text": "b", "label": 1}\n',
        2,
        "JSON list",
    ),
    "JSON surrogate": (
        "jsonl",
        jsonl(
            {"text": "a", "label": 0},
            {"text": "\ud800", "label": 0},
            {"text": "b", "label": 1},
        ),
        2,
        "surrogate",
    ),
    "JSON field": (
        "jsonl",
        jsonl(
            {"text": "a", "label": 0},
            {"txt": "b", "label": 0},
            {"text": "b", "label": 1},
        ),
        2,
        "'text'.*txt, label",
    ),
    "JSON text": (
        "jsonl",
        jsonl(
            {"text": "a", "label": 0},
            {"text": 7, "label": 0},
            {"text": "b", "label": 1},
        ),
        2,
        r"text.*\b7\b.*int",
    ),
    "JSON null": (
        "jsonl",
        jsonl(
            {"text": "a", "label": 0},
            {"text": "b", "label": None},
            {"text": "b", "label": 1},
        ),
        2,
        "label",
    ),
    "JSON label": (
        "jsonl",
        jsonl(
            {"text": "a", "label": 0},
            {"text": "b", "label": 0.5},
            {"text": "b", "label": 1},
        ),
        2,
        r"label.*\b0\.5\b.*float",
    ),
    "lines not UTF-8": ("lines", b"0 a\n0 \xff\n1 b\n", 2, "UTF-8.*0xff.*position 3"),
    "lines label alone": ("lines", "0 a\n0 \n1 b\n", 2, "empty text"),
}


@pytest.mark.parametrize("kind", INVALID)
class TestInvalidRow:
    def test_error_names_file_and_line(self, kind, write):
        format, content, line, problem = INVALID[kind]
        path = write("data", content)
        with pytest.raises(DataError, match=problem) as caught:
            read(path, format)
        assert (caught.value.path, caught.value.line) == (path, line)
        assert "--skip-invalid" in str(caught.value)

    def test_can_be_skipped_and_is_counted(self, kind, write):
        format, content, line, _ = INVALID[kind]
        path = write("data", content)
        rows, invalid_rows = read(path, format, skip=True)
        assert len(rows) == 2
        assert invalid_rows.skipped == {str(path): 1}
        assert f"{path}, line {line}: " in invalid_rows.problems[0]


def test_an_invalid_row_in_parquet_is_reported_by_number(tmp_path):
    path = tmp_path / "data.parquet"
    texts = ["a"] * 1500 + [None, "b"]
    pq.write_table(pa.table({"text": texts, "label": [0] * 1501 + [1]}), path)
    with pytest.raises(DataError, match="text") as caught:
        read(path, "parquet")
    assert caught.value.line == 1501
    rows, invalid_rows = read(path, "parquet", skip=True)
    assert (len(rows), invalid_rows.skipped[str(path)]) == (1501, 1)
    assert rows[-1] == (1502, "b", "1", None)


def test_all_invalid_rows_are_counted_but_only_the_first_are_kept(write):
    path = write("data", HEADER + "a,0\n" + "b\n" * 20)
    _, invalid_rows = read(path, "csv", skip=True)
    assert invalid_rows.skipped[str(path)] == 20
    assert len(invalid_rows.problems) == 5


def test_the_error_for_a_file_without_valid_rows_quotes_the_first_problem(write):
    path = write("data", HEADER + "a\nb\n")
    with pytest.raises(DataError, match=mentions(path, "line 2", "1 fields")):
        read(path, "csv", skip=True)


@pytest.mark.parametrize("format", ["sst", "snli", "stars", "csv", "jsonl", "lines"])
def test_an_empty_file_is_an_error(format, write):
    path = write("data", "")
    with pytest.raises(DataError, match=mentions(path, "rows")):
        read(path, format)


@pytest.mark.parametrize("format", ["csv", "tsv", "parquet"])
def test_the_error_for_a_missing_column_lists_the_columns(format, tmp_path):
    path = tmp_path / "data"
    if format == "parquet":
        pq.write_table(pa.table({"review": ["a"], "label": [0]}), path)
    else:
        path.write_text(
            "review,label\na,0\n".replace(",", {"csv": ","}.get(format, "\t"))
        )
    with pytest.raises(DataError, match=mentions("'text'", "review, label")):
        read(path, format, skip=True)


def test_a_duplicate_column_is_rejected(write):
    with pytest.raises(DataError, match=mentions(2, "'label'")):
        read(write("data", "text,label,label\na,0,1\n"), "csv")


def test_a_file_that_is_not_parquet_is_an_error(write):
    with pytest.raises(DataError, match="Parquet"):
        read(write("data", "text,label\n"), "parquet")


def test_a_truncated_gzip_file_is_an_error(write):
    packed = gzip.compress(b"0 a\n1 b\n" * 100)
    with pytest.raises(DataError, match=mentions("data.txt.gz", "gzip")):
        read(write("data.txt.gz", packed[:-12]), "lines")


def test_trees_are_read_as_sentences(write):
    content = f"{GOOD_TREE}\n(0 (2 -LRB-) (1 1\\/2\xa0x))\n"
    rows, _ = read(write("data", content), "sst")
    assert rows == [
        (1, "A fine day", "positive", None),
        (2, "-LRB- 1\\/2\xa0x", "very negative", None),
    ]


def test_trees_are_read_as_distinct_phrases(write):
    tree = "(3 (2 so) (3 (2 so) (3 good)))"
    rows, _ = read(write("data", tree), "sst", phrases=True, dev="d")
    assert {(text, label) for _, text, label, _ in rows} == {
        ("so so good", "positive"),
        ("so good", "positive"),
        ("good", "positive"),
        ("so", "neutral"),
    }
    assert len(rows) == 4
    assert rows[0].text == "so so good"


def test_binary_drops_neutral_phrases(write):
    trees = "(0 (2 a) (1 b))\n(2 (3 c) (1 d))\n(4 (3 e) (2 f))\n"
    path = write("data", trees)
    rows, _ = read(path, "sst", binary=True)
    assert [row[:3] for row in rows] == [(1, "a b", "negative"), (3, "e f", "positive")]
    phrases, _ = read(path, "sst", binary=True, phrases=True, dev="d")
    assert [row.text for row in phrases] == ["a b", "b", "d", "c", "e f", "e"]


def test_a_tree_can_be_deeper_than_the_recursion_limit(write):
    deep = "(2 (3 x) " * 20_000 + "(2 y)" + ")" * 20_000
    rows, _ = read(write("data", deep), "sst")
    assert len(rows[0].text.split()) == 20_001


def test_ratings_are_labels_and_sentence_separators_are_kept(write):
    line = "u1\t\tp1\t\t10\t\tfine film . <sssss> see\t\tit .\r\n"
    rows, _ = read(write("data", line), "stars")
    assert rows == [(1, "fine film . <sssss> see\t\tit .", "10", None)]


def test_csv_texts_can_contain_commas_quotes_and_newlines(write):
    content = b'\xef\xbb\xbftext,id,label\r\n"a, ""b""\r\nc",1,pos\r\n\r\nd,2, neg \r\n'
    rows, _ = read(write("data", content), "csv")
    assert rows == [(2, 'a, "b"\nc', "pos", None), (5, "d", "neg", None)]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_the_delimiter_of_csv_is_read_from_the_header(write, delimiter):
    rows = ["", "label#text", '0#"a, b#c"', "1#d"]
    content = "\n".join(rows).replace("#", delimiter)
    read_rows, _ = read(write("data", content), "csv")
    assert [row[:3] for row in read_rows] == [
        (3, f"a, b{delimiter}c", "0"),
        (4, "d", "1"),
    ]


def test_a_comma_in_the_header_takes_precedence_over_a_semicolon(write):
    read_rows, _ = read(write("data", "text,label,a;b\nx;y,1,z\n"), "csv")
    assert read_rows[0].text == "x;y"


def test_tsv_has_no_quoting(write):
    rows, _ = read(write("data", 'a\tb\tlabel\n"x\ty"\t1\n'), "tsv", **PAIR)
    assert rows == [(2, '"x', "1", 'y"')]


def test_json_labels_can_be_strings_integers_and_booleans(write):
    values = ["x", 3, 2.0, True]
    path = write("data", jsonl(*({"text": "a", "label": v} for v in values)))
    assert [row.label for row in read(path, "jsonl")[0]] == ["x", "3", "2", "true"]


def test_other_unicode_line_breaks_do_not_end_a_line(write):
    rows, _ = read(write("data", "0 a\u2028b\x85c\n1 d\n"), "lines")
    assert [row[:3] for row in rows] == [(1, "a\u2028b\x85c", "0"), (2, "d", "1")]


def test_gzipped_files_are_decompressed(write):
    rows, _ = read(write("data.gz", gzip.compress(b"0 a\n1 b\n")), "lines")
    assert [row.text for row in rows] == ["a", "b"]


def test_long_fields_are_read(write):
    rows, _ = read(write("data", HEADER + "x" * 200_000 + ",0\n"), "csv")
    assert len(rows[0].text) == 200_000
