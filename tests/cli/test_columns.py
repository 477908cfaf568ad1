"""Columns in the output of ``predict`` and ``encode``."""

import csv
import datetime
import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perron.cli import outputs
from perron.cli.outputs import CsvWriter, ParquetWriter, to_json
from perron.errors import DataError

TEXTS = ["a lovely film", "a dull day", ""]
RESULT_COLUMNS = {"predict": ["label", "probabilities"], "encode": ["vector"]}


def read_rows(path):
    """Read the rows of an output file, parsing JSON values inside CSV."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    lines = path.read_text().splitlines()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in lines]
    nested = ("probabilities", "vector")
    return [
        {key: json.loads(cell) if key in nested else cell for key, cell in row.items()}
        for row in csv.DictReader(lines)
    ]


def write_table(folder, name):
    """Write a file with the columns id, text and tag."""
    path = folder / name
    ids = [70, 80, 90]
    if name.endswith(".parquet"):
        columns = {"id": ids, "text": TEXTS, "tag": ["x", None, "ü"]}
        pq.write_table(pa.table(columns), path)
    elif name.endswith(".jsonl"):
        rows = zip(ids, TEXTS, ["x", None, "ü"], strict=True)
        keys = ("id", "text", "tag")
        lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in rows]
        path.write_text("\n".join(lines))
    else:
        separator = "," if name.endswith(".csv") else "\t"
        rows = zip(["id", *ids], ["text", *TEXTS], ["tag", "x", "", "ü"], strict=True)
        path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("task", ["predict", "encode"])
@pytest.mark.parametrize("name", ["in.csv", "in.tsv", "in.jsonl", "in.parquet"])
def test_every_output_has_the_columns_of_the_file_and_the_results(
    perron, model, tmp_path, task, name
):
    path = write_table(tmp_path, name)
    tables = []
    for extension in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"out.{extension}"
        outcome = perron(task, model, "--file", path, "--out", out)
        assert outcome.status == 0, outcome.err
        rows = read_rows(out)
        assert list(rows[0]) == ["id", "text", "tag", *RESULT_COLUMNS[task]]
        assert [str(row["id"]) for row in rows] == ["70", "80", "90"]
        assert [row["text"] for row in rows] == TEXTS
        assert [row["tag"] or "" for row in rows] == ["x", "", "ü"]
        tables.append(rows)
    for new in RESULT_COLUMNS[task]:
        columns = [[row[new] for row in rows] for rows in tables]
        for first, second, third in zip(*columns, strict=True):
            assert first == second == pytest.approx(third)


def test_an_engine_and_a_single_process_write_the_same_columns(perron, model, tmp_path):
    from perron.integrations.corpora import TextMapper

    path = write_table(tmp_path, "in.parquet")
    for task in ("predict", "encode"):
        out = tmp_path / "out.parquet"
        assert perron(task, model, "--file", path, "--out", out).status == 0
        mapped = TextMapper(model, task)(pq.read_table(path))
        assert pq.read_schema(out).equals(mapped.schema)


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "in.parquet"])
def test_a_conflicting_column_is_an_error_that_suggests_a_prefix(
    perron, model, tmp_path, name
):
    path = tmp_path / name
    if name == "in.parquet":
        pq.write_table(pa.table({"text": TEXTS, "label": [1, 2, 3]}), path)
    elif name == "in.jsonl":
        path.write_text('{"text": "a"}\n{"text": "b", "label": 1}\n')
    else:
        path.write_text("text,label\na film,1\n")
    out = tmp_path / "out.jsonl"
    outcome = perron("predict", model, "--file", path, "--out", out)
    assert outcome.status == 2
    assert "'label'" in outcome.err
    assert "--prefix" in outcome.err
    assert not out.exists()
    options = ["--file", path, "--out", out, "--prefix", "new_"]
    assert perron("predict", model, *options).status == 0
    rows = read_rows(out)
    assert list(rows[-1])[-3:] == ["label", "new_label", "new_probabilities"]


def test_parquet_types_are_preserved(perron, model, tmp_path):
    utc = datetime.timezone.utc  # noqa: UP017
    moment = datetime.datetime(2024, 2, 29, 12, 30, 15, 5, tzinfo=utc)
    columns = {
        "text": pa.array(["a film", "a day"], pa.large_string()),
        "small": pa.array([1, None], pa.int8()),
        "when": pa.array([moment, None], pa.timestamp("us", tz="UTC")),
        "exact": pa.array([1709209815000000001, None], pa.int64()).cast(
            pa.timestamp("ns")
        ),
        "day": pa.array([moment.date(), None], pa.date32()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "kind": pa.array(["x", "y"]).dictionary_encode(),
        "raw": pa.array([b"\xff", None]),
        "tags": pa.array([["a", "b"], None]),
        "more": pa.array([{"k": 1}, {"k": None}]),
        "gone": pa.nulls(2),
        "share": pa.array([0.5, float("nan")]),
    }
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table(columns), path)
    before = pq.read_table(path)
    out = tmp_path / "out.parquet"
    assert perron("encode", model, "--file", path, "--out", out).status == 0
    after = pq.read_table(out).drop_columns("vector")
    assert after.schema.equals(before.schema.remove_metadata())
    assert after.drop_columns("share").equals(before.drop_columns("share"))
    outcome = perron("encode", model, "--file", path)
    first, second = (
        json.loads(line, parse_constant=pytest.fail) for line in output_lines(outcome)
    )
    first.pop("vector")
    assert first == {
        "text": "a film",
        "small": 1,
        "when": "2024-02-29T12:30:15.000005+00:00",
        "exact": "2024-02-29T12:30:15.000000001",
        "day": "2024-02-29",
        "price": "1.50",
        "kind": "x",
        "raw": "/w==",
        "tags": ["a", "b"],
        "more": {"k": 1},
        "gone": None,
        "share": 0.5,
    }
    assert second["share"] is None
    outcome = perron("encode", model, "--file", path, "--format", "csv")
    (line, _) = csv.DictReader(io.StringIO(outcome.out))
    assert line["when"] == first["when"]
    assert json.loads(line["more"]) == {"k": 1}


def output_lines(outcome):
    assert outcome.status == 0, outcome.err
    return outcome.out.splitlines()


class TestParquetWithoutSchema:
    @pytest.fixture
    def write(self, tmp_path, monkeypatch):
        """Write chunks of rows, one row group each; return the table."""
        monkeypatch.setattr(outputs, "ROW_GROUP", 1)

        def write(*chunks):
            path = tmp_path / "out.parquet"
            writer = ParquetWriter(path, [pa.field("label", pa.string())], None)
            for chunk in chunks:
                writer.write([{**row, "label": "l"} for row in chunk])
            writer.close()
            assert list(tmp_path.iterdir()) == [path]
            return pq.read_table(path)

        return write

    def test_a_column_type_is_widened_as_needed(self, write):
        table = write([{"a": None}], [{"a": 1}], [{"a": 2.5}], [{"a": 3}])
        assert table["a"].to_pylist() == [None, 1.0, 2.5, 3.0]

    def test_a_column_may_first_appear_in_a_later_row(self, write):
        table = write([{"a": 1}], [{"b": "x"}], [{"a": 2, "b": None}])
        assert table.column_names == ["a", "b", "label"]
        assert table["b"].to_pylist() == [None, "x", None]

    @pytest.mark.parametrize("later", ["x", {"k": 1}, 2**70])
    def test_mixed_types_are_an_error_that_suggests_jsonl(self, write, later):
        with pytest.raises(DataError, match="--format jsonl"):
            write([{"a": 1}], [{"a": later}])

    def test_an_empty_file_has_the_result_columns(self, write):
        assert write().column_names == ["label"]


def test_csv_has_the_columns_of_the_first_rows():
    file = io.StringIO()
    writer = CsvWriter(file, ["label"])
    writer.write([{"a": 1, "label": "x"}, {"b": 2, "label": "y"}])
    assert file.getvalue().split() == ["a,b,label", "1,,x", ",2,y"]
    with pytest.raises(DataError, match=r"'c'.*--format jsonl"):
        writer.write([{"c": 3, "label": "z"}])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"a": float("nan"), "b": [float("inf"), 1.5]},
            '{"a": null, "b": [null, 1.5]}',
        ),
        ("é", '"é"'),
        ({"a": "\ud800"}, '{"a": "\\ud800"}'),
    ],
)
def test_json_is_always_valid(value, text):
    assert to_json(value) == text
    assert to_json(value).encode()


def test_other_encodings_are_read(perron, model, tmp_path, monkeypatch):
    path = tmp_path / "in.csv"
    path.write_bytes("text,ort\na film,Köln\n".encode("cp1252"))
    outcome = perron("predict", model, "--file", path)
    assert outcome.status == 1
    assert "in.csv, line 2: not valid UTF-8: byte 0xf6 at position 9" in outcome.err
    assert "--encoding cp1252" in outcome.err
    outcome = perron("predict", model, "--file", path, "--encoding", "cp1252")
    (row,) = map(json.loads, output_lines(outcome))
    assert row["ort"] == "Köln"
    stdin = io.TextIOWrapper(io.BytesIO("schön\nübel\n".encode("utf-16")))
    monkeypatch.setattr("sys.stdin", stdin)
    outcome = perron("predict", model, "--encoding", "utf-16")
    texts = [json.loads(line)["text"] for line in output_lines(outcome)]
    assert texts == ["schön", "übel"]
    outcome = perron("predict", model, "--file", path, "--encoding", "utf9")
    assert outcome.status == 2
    assert "'utf9'" in outcome.err


def test_train_and_evaluate_read_other_encodings(perron, model, tmp_path):
    path = tmp_path / "in.csv"
    lines = ["schöner film,good", "übler film,bad"] * 10
    path.write_bytes("\n".join(["text,label", *lines]).encode("latin-1"))
    for command in (["evaluate", model], ["data", "stats"]):
        outcome = perron(*command, "--data", path, "--json")
        assert outcome.status == 1
        assert "--encoding cp1252" in outcome.err
        outcome = perron(*command, "--data", path, "--json", "--encoding", "latin-1")
        assert outcome.status == 0, outcome.err
    outcome = perron("evaluate", model, "--encoding", "latin-1")
    assert outcome.status == 2
    assert "--encoding requires --data" in outcome.err


def test_the_error_for_an_unknown_extension_lists_the_option_and_all_formats(
    perron, model, tmp_path
):
    path = tmp_path / "reviews.xlsx"
    path.write_text("")
    for command in (["train", "--data"], ["predict", model, "--file"]):
        outcome = perron(*command, path)
        assert outcome.status == 2
        for part in (
            "reviews.xlsx",
            "--data-format",
            "jsonl .jsonl .json",
            "stars .ss",
        ):
            assert part in outcome.err
