"""Commands that use a trained model."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from perron_tests.errors import assert_mentions
from perron_tests.training import TINY, write_texts

import perron as library


def test_typed_texts_are_answered_for_people(perron, model):
    told = perron("predict", model, "the film was lovely", "a dull day [b]", "")
    first, second, third = told.out.splitlines()
    assert first.startswith("good ")
    assert first.endswith("%  the film was lovely")
    assert second.startswith("bad ")
    assert second.endswith("a dull day [b]")
    assert third.split()[0] in ("good", "bad")


@pytest.fixture
def new_texts(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text('id,review\n1,"lovely, warm film"\n2,a dull day\n3,\n')
    return path


def test_a_file_becomes_json_lines(perron, model, new_texts):
    told = perron("predict", model, "--file", new_texts, "--text", "review")
    rows = [json.loads(line) for line in told.out.splitlines()]
    assert [list(row) for row in rows] == [
        ["id", "review", "label", "probabilities"]
    ] * 3
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert [row["review"] for row in rows] == ["lovely, warm film", "a dull day", ""]
    want = library.load(model).predict_proba([row["review"] for row in rows])
    got = [list(row["probabilities"].values()) for row in rows]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert [row["label"] for row in rows[:2]] == ["good", "bad"]


def test_csv_and_parquet_have_the_same_rows(perron, model, new_texts, tmp_path):
    options = ["--file", new_texts, "--text", "review"]
    told = perron("predict", model, *options, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(told.out)))
    out = tmp_path / "labels.parquet"
    assert perron("predict", model, *options, "--out", out).status == 0
    table = pq.read_table(out).to_pylist()
    assert list(rows[0]) == list(table[0])
    for row, other in zip(rows, table, strict=True):
        shares = json.loads(row.pop("probabilities"))
        assert shares == pytest.approx(other.pop("probabilities"))
        assert row == other


def test_standard_input_is_read_line_by_line(perron, model, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"lovely film\n\ndull\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    told = perron("predict", model, "--format", "csv")
    assert len(told.out.splitlines()) == 4


def test_bad_utf8_on_standard_input_is_named_by_its_line(perron, model, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"fine\n\xff\xfe\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    told = perron("predict", model)
    assert told.status == 1
    assert_mentions(told.err, "-, line 2", "UTF-8", "0xff")


def test_more_texts_than_a_chunk_keep_their_order(perron, model, tmp_path):
    path = tmp_path / "many.txt"
    path.write_text(
        "".join(f"{'lovely' if k % 3 else 'dull'} {k}\n" for k in range(2500))
    )
    told = perron("predict", model, "--file", path)
    rows = [json.loads(line) for line in told.out.splitlines()]
    assert [int(row["text"].split()[1]) for row in rows] == list(range(2500))
    assert all((row["label"] == "bad") == ("dull" in row["text"]) for row in rows)


def test_vectors_are_those_of_the_library(perron, model, new_texts, tmp_path):
    out = tmp_path / "vectors.parquet"
    told = perron(
        "encode", model, "--file", new_texts, "--text", "review", "--out", out
    )
    assert told.status == 0
    table = pq.read_table(out)
    want = library.load(model).encode(table.column("review").to_pylist())
    np.testing.assert_allclose(table.column("vector").to_pylist(), want, rtol=1e-5)


def test_a_failed_command_leaves_no_output(perron, model, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "fine"}\n{"text": 3}\n')
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    told = perron("predict", model, "--file", path, "--out", out)
    assert told.status == 1
    assert "bad.jsonl, line 2: " in told.err
    assert out.read_text() == "before"
    told = perron("predict", model, "--file", path, "--out", out, "--skip-invalid")
    assert told.status == 0
    assert_mentions(told.err, "1 bad row")
    assert len(out.read_text().splitlines()) == 1


def test_the_models_own_test_data_are_found_again(perron, model):
    told = perron("evaluate", model, "--json")
    result = json.loads((model / "result.json").read_text())
    found = json.loads(told.out)
    assert {name: found[name] for name in result["test"]} == result["test"]
    assert found["confusion"] == result["confusion"]
    assert found["texts"] == 12
    assert set(found["classes"]) == {"bad", "good"}
    assert "accuracy" in perron("evaluate", model, "--part", "dev").out


def test_other_data_can_be_evaluated(perron, model, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("words,verdict\nlovely film,good\ndull film,bad\ncold,good\n")
    options = ["--data", path, "--text", "words", "--label", "verdict"]
    assert json.loads(perron("evaluate", model, *options, "--json").out)["texts"] == 3
    path.write_text("words,verdict\nlovely film,good\ndull film,awful\n")
    told = perron("evaluate", model, *options)
    assert told.status == 1
    assert "other.csv, line 3: " in told.err
    assert "awful" in told.err


MISUSE = {
    ("predict", "nowhere", "text"): (1, "nowhere"),
    ("predict", "MODEL", "--format", "xml", "a"): (2, "--format", "xml", "jsonl"),
    ("predict", "MODEL", "--format", "parquet", "a"): (2, "--format parquet", "--out"),
    ("predict", "MODEL", "a", "--out", "b.xlsx"): (2, "b.xlsx", "--format"),
    ("predict", "MODEL", "a", "--file", "b.csv"): (2, "--file", "both"),
    ("predict", "MODEL", "--file", "b.csv"): (1, "b.csv"),
    ("predict", "MODEL", "--file", "b.doc"): (2, "b.doc"),
    ("encode", "MODEL", "--file", "b.csv", "--data-format", "x"): (
        2,
        "data format",
        "'x'",
        "sst",
    ),
    ("predict", "MODEL", "\udcff"): (2, "'\\udcff'", "UTF-8"),
    ("predict", "MODEL", "--file", "-", "--text", "a"): (
        2,
        "standard input",
        "--text",
        "--file",
    ),
    ("evaluate", "MODEL", "--text", "a"): (2, "--text", "--data"),
    ("evaluate", "MODEL", "--part", "all"): (2, "--part all", "train", "dev"),
    ("info", "nowhere"): (1, "nowhere"),
    ("predict",): (2, "Missing argument"),
    ("nonsense",): (2, "No such command"),
}


@pytest.mark.parametrize("arguments", MISUSE, ids=lambda parts: ascii(" ".join(parts)))
def test_misuse_is_said_without_a_traceback(
    perron, model, arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    status, *parts = MISUSE[arguments]
    told = perron(*(str(model) if part == "MODEL" else part for part in arguments))
    assert (told.status, "Traceback" in told.err) == (status, False)
    assert_mentions(told.err, *parts)


def test_info_describes_a_model(perron, model):
    told = perron("info", model)
    assert "centrality (hidden 50" in told.out
    assert "bad, good" in told.out


def test_stats_of_a_file_are_counted(perron, texts):
    told = json.loads(perron("data", "stats", "--data", texts, "--json").out)
    (found,) = told.values()
    assert found["sizes"] == {"train": 96, "dev": 12, "test": 12}
    assert sum(found["labels"].values()) == 96
    assert "vocabulary" in perron("data", "stats", "--data", texts).out


def test_nothing_becomes_an_empty_file(perron, model, tmp_path):
    path = tmp_path / "nothing.txt"
    path.write_text("")
    out = tmp_path / "labels.parquet"
    assert perron("predict", model, "--file", path, "--out", out).status == 0
    assert pq.read_table(out).num_rows == 0


def test_bad_lines_of_standard_input_can_be_left_out(perron, model, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"fine\n\xff\xfe\ndull\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    told = perron("predict", model, "--skip-invalid")
    assert told.status == 0
    assert [json.loads(line)["text"] for line in told.out.splitlines()] == [
        "fine",
        "dull",
    ]
    assert_mentions(told.err, "1 bad row")


def test_evaluate_reads_the_split_of_the_hub_that_is_asked_for(perron, model, tmp_path):
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\n" + "lovely film,good\n" * 5)
    (folder / "test.csv").write_text("text,label\n" + "dull film,bad\n" * 3)
    for options, texts in (([], 3), (["--part", "train"], 5)):
        told = perron("evaluate", model, "--data", f"hub:{folder}", "--json", *options)
        assert json.loads(told.out)["texts"] == texts


def test_classes_that_changed_since_are_noticed(perron, tmp_path):
    path = write_texts(tmp_path / "texts.csv")
    folder = tmp_path / "run"
    options = [*TINY, "--set=training.max_epochs=1"]
    assert perron("train", "--data", path, "--out", folder, *options).status == 0
    path.write_text(path.read_text() + "strange film,awful\n")
    told = perron("evaluate", folder)
    assert told.status == 1
    assert_mentions(told.err, folder, "classes", "changed")


class TestPairs:
    @pytest.fixture
    def pairs(self, perron, shared_cache):
        path = shared_cache / "pairs.csv"
        if not path.exists():
            lines = ["one film,one film,same", "one film,two days,other"] * 15
            path.write_text("\n".join(["a,b,c", *lines]))
            options = ["--text", "a", "--text-pair", "b", "--label", "c", *TINY]
            options += ["--data", path, "--out", shared_cache / "pairs"]
            told = perron("train", *options)
            assert told.status == 0, told.err
            assert told.err.endswith('"..." "..."\n')
        return shared_cache / "pairs"

    def test_typed_pairs_are_told_apart(self, perron, pairs):
        told = perron("predict", pairs, "one film", "one film", "one film", "two days")
        first, second = told.out.splitlines()
        assert first.endswith("%  one film | one film")
        assert second.endswith("%  one film | two days")

    def test_single_texts_are_no_pairs(self, perron, pairs, tmp_path):
        path = tmp_path / "single.txt"
        path.write_text("one film\n")
        told = perron("predict", pairs, "--file", path)
        assert told.status == 2
        assert_mentions(told.err, "model", "pairs", "single texts")

    def test_both_texts_are_read(self, perron, pairs, shared_cache, monkeypatch):
        options = [
            "--file",
            shared_cache / "pairs.csv",
            "--text",
            "a",
            "--text-pair",
            "b",
        ]
        told = perron("predict", pairs, *options, "--format", "csv")
        from_file = rows_of(told.out)[:2]
        stdin = io.TextIOWrapper(io.BytesIO(b"one film\tone film\none film\ttwo days"))
        monkeypatch.setattr("sys.stdin", stdin)
        told = perron("predict", pairs, "--format", "csv")
        for row, same in zip(rows_of(told.out), from_file, strict=True):
            # Up to rounding, which is another in a batch of 30 than in one of 2.
            shares = json.loads(row["probabilities"])
            assert shares == pytest.approx(json.loads(same["probabilities"]))
            assert row["label"] == same["label"]
            assert [row["text"], row["text_pair"]] == [same["a"], same["b"]]
        assert from_file[1]["b"] == "two days"


def rows_of(text):
    """Rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(text)))
