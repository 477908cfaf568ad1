"""Commands that use a trained model."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from perron_tests.errors import assert_mentions
from perron_tests.training import TINY, write_texts
from rich.console import Console

import perron as library
from perron.cli.console import confusion_table


def test_results_for_argument_texts_are_readable(perron, model):
    outcome = perron("predict", model, "the film was lovely", "a dull day [b]", "")
    first, second, third = outcome.out.splitlines()
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


def test_results_for_a_file_are_json_lines(perron, model, new_texts):
    outcome = perron("predict", model, "--file", new_texts, "--text", "review")
    rows = [json.loads(line) for line in outcome.out.splitlines()]
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
    outcome = perron("predict", model, *options, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    out = tmp_path / "labels.parquet"
    assert perron("predict", model, *options, "--out", out).status == 0
    table = pq.read_table(out).to_pylist()
    assert list(rows[0]) == list(table[0])
    for row, other in zip(rows, table, strict=True):
        probabilities = json.loads(row.pop("probabilities"))
        assert probabilities == pytest.approx(other.pop("probabilities"))
        assert row == other


def test_standard_input_is_read_line_by_line(perron, model, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"lovely film\n\ndull\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    outcome = perron("predict", model, "--format", "csv")
    assert len(outcome.out.splitlines()) == 4


def test_invalid_utf8_on_standard_input_is_reported_with_its_line(
    perron, model, monkeypatch
):
    stdin = io.TextIOWrapper(io.BytesIO(b"fine\n\xff\xfe\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    outcome = perron("predict", model)
    assert outcome.status == 1
    assert_mentions(outcome.err, "-, line 2", "UTF-8", "0xff")


def test_several_chunks_keep_their_order(perron, model, tmp_path):
    path = tmp_path / "many.txt"
    path.write_text(
        "".join(f"{'lovely' if k % 3 else 'dull'} {k}\n" for k in range(2500))
    )
    outcome = perron("predict", model, "--file", path)
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [int(row["text"].split()[1]) for row in rows] == list(range(2500))
    assert all((row["label"] == "bad") == ("dull" in row["text"]) for row in rows)


def test_encode_matches_the_python_api(perron, model, new_texts, tmp_path):
    out = tmp_path / "vectors.parquet"
    outcome = perron(
        "encode", model, "--file", new_texts, "--text", "review", "--out", out
    )
    assert outcome.status == 0
    table = pq.read_table(out)
    want = library.load(model).encode(table.column("review").to_pylist())
    np.testing.assert_allclose(table.column("vector").to_pylist(), want, rtol=1e-5)


def test_a_failed_command_keeps_the_existing_file(perron, model, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "fine"}\n{"text": 3}\n')
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    outcome = perron("predict", model, "--file", path, "--out", out)
    assert outcome.status == 1
    assert "bad.jsonl, line 2: " in outcome.err
    assert out.read_text() == "before"
    outcome = perron("predict", model, "--file", path, "--out", out, "--skip-invalid")
    assert outcome.status == 0
    assert_mentions(outcome.err, "1 invalid row")
    assert len(out.read_text().splitlines()) == 1


def test_evaluate_uses_the_test_data_of_the_run(perron, model):
    outcome = perron("evaluate", model, "--json")
    result = json.loads((model / "result.json").read_text())
    evaluation = json.loads(outcome.out)
    assert {name: evaluation[name] for name in result["test"]} == result["test"]
    assert evaluation["confusion"] == result["confusion"]
    assert evaluation["texts"] == 12
    assert set(evaluation["classes"]) == {"bad", "good"}
    assert "accuracy" in perron("evaluate", model, "--part", "dev").out


def test_evaluate_prints_and_draws_the_confusion_matrix(perron, model, tmp_path):
    plot = tmp_path / "confusion.svg"
    outcome = perron("evaluate", model, "--plot", plot)
    assert_mentions(outcome.out, "predicted", "ECE", "bad", "good")
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize(("width", "columns"), [(200, "cats"), (40, "(2)")])
def test_a_confusion_matrix_fits_the_terminal(width, columns):
    labels = ["dogs", "cats", "elephants", "hippopotami"]
    table = confusion_table(labels, np.diag([3, 2000, 0, 1]).tolist(), width)
    assert [column.header for column in table.columns][2] == columns
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    text = console.export_text()
    assert_mentions(text, *labels, 2000)
    assert "…" not in text


def test_only_the_most_frequent_confusions_of_many_classes_are_printed():
    labels = [f"class{number}" for number in range(13)]
    counts = np.eye(13, dtype=int)
    counts[4, 7], counts[2, 1] = 3, 1
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(confusion_table(labels, counts.tolist()))
    rows = [line.split() for line in console.export_text().splitlines()]
    rows = [[word for word in row if word != "│"] for row in rows if "│" in row]
    assert rows == [
        ["class4", "class7", "3", "75.0", "%"],
        ["class2", "class1", "1", "50.0", "%"],
    ]


def test_evaluate_accepts_other_data(perron, model, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("words,verdict\nlovely film,good\ndull film,bad\ncold,good\n")
    options = ["--data", path, "--text", "words", "--label", "verdict"]
    assert json.loads(perron("evaluate", model, *options, "--json").out)["texts"] == 3
    path.write_text("words,verdict\nlovely film,good\ndull film,awful\n")
    outcome = perron("evaluate", model, *options)
    assert outcome.status == 1
    assert "other.csv, line 3: " in outcome.err
    assert "awful" in outcome.err


INVALID_USAGE = {
    ("predict", "nowhere", "text"): (1, "nowhere"),
    ("predict", "MODEL", "--format", "xml", "a"): (2, "--format", "xml", "jsonl"),
    ("predict", "MODEL", "--format", "parquet", "a"): (2, "--format parquet", "--out"),
    ("predict", "MODEL", "a", "--out", "b.xlsx"): (2, "b.xlsx", "--format"),
    ("predict", "MODEL", "a", "--file", "b.csv"): (2, "texts", "--file", "exclusive"),
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
        "Standard input",
        "--text",
        "--file",
    ),
    ("evaluate", "MODEL", "--text", "a"): (2, "--text", "--data"),
    ("evaluate", "MODEL", "--plot", "matrix.txt"): (2, "--plot", "matrix.txt", ".png"),
    ("evaluate", "MODEL", "--part", "all"): (2, "--part", "all", "train", "dev"),
    ("info", "nowhere"): (1, "nowhere"),
    ("predict",): (2, "Missing argument"),
    ("nonsense",): (2, "No such command"),
}


@pytest.mark.parametrize(
    "arguments", INVALID_USAGE, ids=lambda parts: ascii(" ".join(parts))
)
def test_invalid_usage_is_reported_without_a_traceback(
    perron, model, arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    status, *parts = INVALID_USAGE[arguments]
    outcome = perron(*(str(model) if part == "MODEL" else part for part in arguments))
    assert (outcome.status, "Traceback" in outcome.err) == (status, False)
    assert_mentions(outcome.err, *parts)


def test_info_describes_a_model(perron, model):
    outcome = perron("info", model)
    assert "centrality (hidden_dim=50" in outcome.out
    assert "bad, good" in outcome.out


def test_stats_describe_a_file(perron, texts):
    outcome = perron("data", "stats", "--data", texts, "--json")
    (statistics,) = json.loads(outcome.out).values()
    assert statistics["sizes"] == {"train": 96, "dev": 12, "test": 12}
    assert sum(statistics["labels"].values()) == 96
    assert "vocabulary" in perron("data", "stats", "--data", texts).out


def test_an_empty_input_produces_an_empty_file(perron, model, tmp_path):
    path = tmp_path / "nothing.txt"
    path.write_text("")
    out = tmp_path / "labels.parquet"
    assert perron("predict", model, "--file", path, "--out", out).status == 0
    assert pq.read_table(out).num_rows == 0


def test_invalid_lines_of_standard_input_can_be_skipped(perron, model, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"fine\n\xff\xfe\ndull\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    outcome = perron("predict", model, "--skip-invalid")
    assert outcome.status == 0
    assert [json.loads(line)["text"] for line in outcome.out.splitlines()] == [
        "fine",
        "dull",
    ]
    assert_mentions(outcome.err, "1 invalid row")


def test_evaluate_reads_the_requested_split_of_a_hub_dataset(perron, model, tmp_path):
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\n" + "lovely film,good\n" * 5)
    (folder / "test.csv").write_text("text,label\n" + "dull film,bad\n" * 3)
    for options, texts in (([], 3), (["--part", "train"], 5)):
        outcome = perron(
            "evaluate", model, "--data", f"hub:{folder}", "--json", *options
        )
        assert json.loads(outcome.out)["texts"] == texts


def test_changed_classes_are_detected(perron, tmp_path):
    path = write_texts(tmp_path / "texts.csv")
    folder = tmp_path / "run"
    options = [*TINY, "--set=training.max_epochs=1"]
    assert perron("train", "--data", path, "--out", folder, *options).status == 0
    path.write_text(path.read_text() + "strange film,awful\n")
    outcome = perron("evaluate", folder)
    assert outcome.status == 1
    assert_mentions(outcome.err, folder, "classes", "changed")


class TestPairs:
    @pytest.fixture
    def pairs(self, perron, shared_cache):
        path = shared_cache / "pairs.csv"
        if not path.exists():
            lines = ["one film,one film,same", "one film,two days,other"] * 15
            path.write_text("\n".join(["a,b,c", *lines]))
            options = ["--text", "a", "--text-pair", "b", "--label", "c", *TINY]
            options += ["--data", path, "--out", shared_cache / "pairs"]
            outcome = perron("train", *options)
            assert outcome.status == 0, outcome.err
            assert outcome.err.endswith('"..." "..."\n')
        return shared_cache / "pairs"

    def test_argument_texts_are_paired(self, perron, pairs):
        outcome = perron(
            "predict", pairs, "one film", "one film", "one film", "two days"
        )
        first, second = outcome.out.splitlines()
        assert first.endswith("%  one film | one film")
        assert second.endswith("%  one film | two days")

    def test_a_pair_model_rejects_single_texts(self, perron, pairs, tmp_path):
        path = tmp_path / "single.txt"
        path.write_text("one film\n")
        outcome = perron("predict", pairs, "--file", path)
        assert outcome.status == 2
        assert_mentions(outcome.err, "model", "pairs", "single texts")

    def test_both_texts_of_a_pair_are_read(
        self, perron, pairs, shared_cache, monkeypatch
    ):
        options = [
            "--file",
            shared_cache / "pairs.csv",
            "--text",
            "a",
            "--text-pair",
            "b",
        ]
        outcome = perron("predict", pairs, *options, "--format", "csv")
        from_file = csv_rows(outcome.out)[:2]
        stdin = io.TextIOWrapper(io.BytesIO(b"one film\tone film\none film\ttwo days"))
        monkeypatch.setattr("sys.stdin", stdin)
        outcome = perron("predict", pairs, "--format", "csv")
        for row, same in zip(csv_rows(outcome.out), from_file, strict=True):
            # Equal up to rounding, which depends on the batch size (30 or 2).
            probabilities = json.loads(row["probabilities"])
            assert probabilities == pytest.approx(json.loads(same["probabilities"]))
            assert row["label"] == same["label"]
            assert [row["text"], row["text_pair"]] == [same["a"], same["b"]]
        assert from_file[1]["b"] == "two days"


def csv_rows(text):
    """Return the rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(text)))
