import json

import pytest

from perron.text.datasets import Statistics, load_data, statistics
from perron.text.settings import DataSettings


def test_statistics_are_correct_for_a_small_dataset(write, tmp_path):
    write("train", "bad A film.\ngood The film, it's fine\n\ngood a film\n")
    write("dev", "bad a\ngood b\n")
    data = DataSettings(format="lines", train="train", dev="dev", skip_invalid=True)
    splits = load_data(data, tmp_path)
    result = statistics(splits, data, "lower")
    assert result == Statistics(
        sizes={"train": 3, "dev": 2, "test": 0},
        labels={"bad": 1, "good": 2},
        mean_length=(3 + 6 + 2) / 3,
        vocabulary=8,
        skipped=sum(splits.skipped.values()),
        dropped=0,
        fingerprint=result.fingerprint,
    )
    assert statistics(splits, data, "keep").vocabulary == 9


def test_the_fingerprint_depends_on_texts_labels_and_splits(write, tmp_path):
    def fingerprint(train, dev):
        write("train", train)
        write("dev", dev)
        data = DataSettings(format="lines", train="train", dev="dev")
        return statistics(load_data(data, tmp_path), data, "lower").fingerprint

    train, dev = "bad a\ngood b\n", "bad c\ngood d\n"
    first = fingerprint(train, dev)
    assert fingerprint(train, dev) == first
    assert fingerprint("bad  a\r\ngood b", dev) == first  # same rows
    others = [
        (train.replace("a\n", "x\n"), dev),
        ("good a\nbad b\n", dev),
        ("good b\nbad a\n", dev),
        (dev, train),
        (train.replace("bad", "sad"), dev.replace("bad", "sad")),
        (train + dev, dev),
    ]
    assert len({first, *(fingerprint(*other) for other in others)}) == 7


def test_the_texts_of_a_pair_are_counted_separately(write):
    def pair(label, premise, hypothesis):
        record = {"gold_label": label, "sentence1": premise, "sentence2": hypothesis}
        return json.dumps(record) + "\n"

    rows = [("neutral", "a b c", "a"), ("-", "x", "y"), ("entailment", "a b", "c d")]
    path = write("pairs", "".join(pair(*row) for row in rows))
    dev = write("dev", pair(*rows[1]) * 2 + pair(*rows[2]))
    data = DataSettings(format="snli", train=str(path), dev=str(dev))
    result = statistics(load_data(data), data, "lower")
    assert result.sizes == {"train": 2, "dev": 1, "test": 0}
    assert result.labels == {"entailment": 1, "neutral": 1, "contradiction": 0}
    assert result.mean_length == (3 + 1 + 2 + 2) / 4
    assert result.vocabulary == 4
    assert result.dropped == 3


def test_sentence_separators_are_not_counted(write):
    line = "u\t\tp\t\t{}\t\ta b . <sssss> c .\n"
    path = write("r.txt.ss", line.format(1) + line.format(2))
    data = DataSettings(format="stars", train=str(path), dev=str(path))
    result = statistics(load_data(data), data, "lower")
    assert result.mean_length == 5
    assert result.vocabulary == 4


def test_skipped_rows_are_counted(write):
    train = write("train.csv", "text,label\nx,0\ny,\nz,1\n")
    dev = write("dev.csv", "text,label\nx,0\ny,7\nz,\n")
    data = DataSettings(format="csv", train=str(train), dev=str(dev), skip_invalid=True)
    result = statistics(load_data(data), data, "lower")
    assert result.skipped == 3
    assert result.sizes == {"train": 2, "dev": 1, "test": 0}


def test_statistics_of_sst_are_close_to_the_paper(real_data):
    parts = {name: f"sst/trees/{name}.txt" for name in ("train", "dev", "test")}
    data = DataSettings(format="sst", **parts)
    result = statistics(load_data(data, real_data), data, "lower")
    assert result.sizes == {"train": 8544, "dev": 1101, "test": 2210}
    # The paper reports 18 words and a vocabulary of 16.3k, but not how it counts.
    assert result.mean_length == pytest.approx(19.1, abs=0.1)
    assert result.vocabulary == pytest.approx(16_300, rel=0.02)
