import json

import pytest

from perron.text.datasets import Statistics, load_data, statistics
from perron.text.settings import DataSettings


def test_texts_are_counted_by_hand(write, tmp_path):
    write("train", "bad A film.\ngood The film, it's fine\n\ngood a film\n")
    write("dev", "bad a\ngood b\n")
    data = DataSettings(format="lines", train="train", dev="dev", skip_invalid=True)
    splits = load_data(data, tmp_path)
    found = statistics(splits, data, "lower")
    assert found == Statistics(
        sizes={"train": 3, "dev": 2, "test": 0},
        labels={"bad": 1, "good": 2},
        mean_length=(3 + 6 + 2) / 3,
        vocabulary=8,
        skipped=sum(splits.skipped.values()),
        dropped=0,
        fingerprint=found.fingerprint,
    )
    assert statistics(splits, data, "keep").vocabulary == 9


def test_the_fingerprint_tells_texts_labels_and_parts_apart(write, tmp_path):
    def fingerprint(train, dev):
        write("train", train)
        write("dev", dev)
        data = DataSettings(format="lines", train="train", dev="dev")
        return statistics(load_data(data, tmp_path), data, "lower").fingerprint

    train, dev = "bad a\ngood b\n", "bad c\ngood d\n"
    first = fingerprint(train, dev)
    assert fingerprint(train, dev) == first
    assert fingerprint("bad  a\r\ngood b", dev) == first  # the same in other letters
    others = [
        (train.replace("a\n", "x\n"), dev),
        ("good a\nbad b\n", dev),
        ("good b\nbad a\n", dev),
        (dev, train),
        (train.replace("bad", "sad"), dev.replace("bad", "sad")),
        (train + dev, dev),
    ]
    assert len({first, *(fingerprint(*other) for other in others)}) == 7


def test_the_texts_of_a_pair_are_counted_each_on_its_own(write):
    def pair(label, premise, hypothesis):
        record = {"gold_label": label, "sentence1": premise, "sentence2": hypothesis}
        return json.dumps(record) + "\n"

    rows = [("neutral", "a b c", "a"), ("-", "x", "y"), ("entailment", "a b", "c d")]
    path = write("pairs", "".join(pair(*row) for row in rows))
    dev = write("dev", pair(*rows[1]) * 2 + pair(*rows[2]))
    data = DataSettings(format="snli", train=str(path), dev=str(dev))
    found = statistics(load_data(data), data, "lower")
    assert found.sizes == {"train": 2, "dev": 1, "test": 0}
    assert found.labels == {"entailment": 1, "neutral": 1, "contradiction": 0}
    assert found.mean_length == (3 + 1 + 2 + 2) / 4
    assert found.vocabulary == 4
    assert found.dropped == 3


def test_marks_between_sentences_have_no_length(write):
    line = "u\t\tp\t\t{}\t\ta b . <sssss> c .\n"
    path = write("r.txt.ss", line.format(1) + line.format(2))
    data = DataSettings(format="stars", train=str(path), dev=str(path))
    found = statistics(load_data(data), data, "lower")
    assert found.mean_length == 5
    assert found.vocabulary == 4


def test_bad_rows_are_counted(write):
    train = write("train.csv", "text,label\nx,0\ny,\nz,1\n")
    dev = write("dev.csv", "text,label\nx,0\ny,7\nz,\n")
    data = DataSettings(format="csv", train=str(train), dev=str(dev), skip_invalid=True)
    found = statistics(load_data(data), data, "lower")
    assert found.skipped == 3
    assert found.sizes == {"train": 2, "dev": 1, "test": 0}


def test_sst_is_nearly_as_the_paper_says(real_data):
    parts = {name: f"sst/trees/{name}.txt" for name in ("train", "dev", "test")}
    data = DataSettings(format="sst", **parts)
    found = statistics(load_data(data, real_data), data, "lower")
    assert found.sizes == {"train": 8544, "dev": 1101, "test": 2210}
    # It says 18 words and 16.3k different ones; how it counts is not known.
    assert found.mean_length == pytest.approx(19.1, abs=0.1)
    assert found.vocabulary == pytest.approx(16_300, rel=0.02)
