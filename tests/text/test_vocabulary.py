from collections import Counter

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from perron.text import vocabulary
from perron.text.datasets import load_data
from perron.text.settings import DataSettings
from perron.text.tokenizers import UNKNOWN, WordTokenizer
from perron.text.vocabulary import count_words, dataset_counts, select_words

RAW = DataSettings(format="csv", train="unread.csv")
MARKED = DataSettings(format="stars", train="unread.ss")
KNOWS_NOTHING = WordTokenizer.of_words([UNKNOWN], "keep")
TEXTS = st.text(st.sampled_from("abAB .'()"), max_size=12)


@pytest.fixture
def counted(monkeypatch):
    """Collect the texts of every call that really counts."""
    calls = []

    def spy(batches, case, pretokenized=False):
        calls.append([text for batch in batches for text in batch])
        return count_words(batches, case, pretokenized)

    monkeypatch.setattr(vocabulary, "count_words", spy)
    return calls


def test_words_are_counted_most_frequent_first_then_by_the_alphabet():
    batches = [["b a. B isn't", ""], ["a b (b)", "c"]]
    counts = count_words(batches, "lower")
    want = {"b": 4, "a": 2, "(": 1, ")": 1, ".": 1, "c": 1, "is": 1, "n't": 1}
    assert list(counts.items()) == list(want.items())
    assert count_words(batches, "keep")["B"] == 1
    assert count_words(batches, "lower", pretokenized=True)["isn't"] == 1


@settings(deadline=None)
@given(
    batches=st.lists(st.lists(TEXTS, max_size=4), max_size=4),
    pretokenized=st.booleans(),
)
def test_counts_are_those_of_the_words_that_are_found(batches, pretokenized):
    want = Counter(
        word.text.replace("''", '"')
        for batch in batches
        for text in batch
        for word in KNOWS_NOTHING.find_words(text, pretokenized)
    )
    assert count_words(batches, "keep", pretokenized) == want


def test_the_name_of_the_unknown_word_is_counted_like_any_other():
    assert count_words([["[UNK]"]], "keep") == {"UNK": 1, "[": 1, "]": 1}
    assert count_words([["[UNK] a"]], "keep", pretokenized=True) == {UNKNOWN: 1, "a": 1}


def test_both_texts_of_a_pair_are_counted_and_labels_are_not():
    pairs = {"text": ["a b", ""], "pair": ["b", "c"], "label": [0, 1], "line": [1, 2]}
    assert dataset_counts(Dataset.from_dict(pairs), "keep", RAW) == {
        "b": 2,
        "a": 1,
        "c": 1,
    }


def test_a_mark_between_sentences_is_no_word():
    rows = Dataset.from_dict({"text": ["a . <sssss> b .<sssss>"]})
    assert dataset_counts(rows, "keep", MARKED) == {".": 2, "a": 1, "b": 1}
    assert "sssss" in dataset_counts(rows, "keep", RAW)


def test_only_the_chosen_rows_are_counted():
    rows = Dataset.from_dict({"text": ["a", "b", "c"]}).select([2, 0])
    assert dataset_counts(rows, "keep", RAW) == {"a": 1, "c": 1}


def test_a_dataset_is_counted_once(counted, write):
    path = write("data.txt", "".join(f"{i % 2} word{i} B\n" for i in range(20)))
    data = DataSettings(format="lines", train=str(path))
    first = dataset_counts(load_data(data).train, "lower", data)
    again = dataset_counts(load_data(data).train, "lower", data)
    assert list(again.items()) == list(first.items())
    assert len(counted) == 1
    other = data.model_copy(update={"pretokenized": True})
    dataset_counts(load_data(data).train, "keep", data)
    dataset_counts(load_data(data).train, "lower", other)
    dataset_counts(load_data(data).dev, "lower", data)
    assert len(counted) == 4


def test_a_vocabulary_is_the_unknown_word_frequent_words_and_others_once():
    counts = {"the": 9, "film": 3, "rare": 2, UNKNOWN: 2}
    assert select_words(counts, 1) == [UNKNOWN, "the", "film", "rare"]
    assert select_words(counts, 3) == [UNKNOWN, "the", "film"]
    others = iter(["new", "the", "rare", "new", UNKNOWN])
    assert select_words(counts, 3, others) == [
        UNKNOWN,
        "the",
        "film",
        "new",
        "rare",
    ]
    assert select_words({}, 1) == [UNKNOWN]
