from collections import Counter

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from perron.text import vocabulary
from perron.text.datasets import load_data
from perron.text.settings import DataSettings
from perron.text.tokenizers import UNKNOWN, WordTokenizer
from perron.text.vocabulary import count_dataset_words, count_words, select_words

RAW = DataSettings(format="csv", train="unread.csv")
STARS = DataSettings(format="stars", train="unread.ss")
EMPTY = WordTokenizer.from_words([UNKNOWN], "keep")
TEXTS = st.text(st.sampled_from("abAB .'()"), max_size=12)


@pytest.fixture
def count_calls(monkeypatch):
    """Texts of each call that is not served from the cache."""
    calls = []

    def spy(batches, case, pretokenized=False):
        calls.append([text for batch in batches for text in batch])
        return count_words(batches, case, pretokenized)

    monkeypatch.setattr(vocabulary, "count_words", spy)
    return calls


def test_words_are_sorted_by_count_then_alphabetically():
    batches = [["b a. B isn't", ""], ["a b (b)", "c"]]
    counts = count_words(batches, "lower")
    expected = {"b": 4, "a": 2, "(": 1, ")": 1, ".": 1, "c": 1, "is": 1, "n't": 1}
    assert list(counts.items()) == list(expected.items())
    assert count_words(batches, "keep")["B"] == 1
    assert count_words(batches, "lower", pretokenized=True)["isn't"] == 1


@settings(deadline=None)
@given(
    batches=st.lists(st.lists(TEXTS, max_size=4), max_size=4),
    pretokenized=st.booleans(),
)
def test_counts_match_the_tokenizer(batches, pretokenized):
    expected = Counter(
        token.text.replace("''", '"')
        for batch in batches
        for text in batch
        for token in EMPTY.tokenize(text, pretokenized)
    )
    assert count_words(batches, "keep", pretokenized) == expected


def test_the_unknown_token_is_counted_like_any_other_word():
    assert count_words([["[UNK]"]], "keep") == {"UNK": 1, "[": 1, "]": 1}
    assert count_words([["[UNK] a"]], "keep", pretokenized=True) == {UNKNOWN: 1, "a": 1}


def test_both_texts_of_a_pair_are_counted():
    pairs = {"text": ["a b", ""], "pair": ["b", "c"], "label": [0, 1], "line": [1, 2]}
    assert count_dataset_words(Dataset.from_dict(pairs), "keep", RAW) == {
        "b": 2,
        "a": 1,
        "c": 1,
    }


def test_a_sentence_separator_is_not_a_word():
    rows = Dataset.from_dict({"text": ["a . <sssss> b .<sssss>"]})
    assert count_dataset_words(rows, "keep", STARS) == {".": 2, "a": 1, "b": 1}
    assert "sssss" in count_dataset_words(rows, "keep", RAW)


def test_only_selected_rows_are_counted():
    rows = Dataset.from_dict({"text": ["a", "b", "c"]}).select([2, 0])
    assert count_dataset_words(rows, "keep", RAW) == {"a": 1, "c": 1}


def test_a_dataset_is_counted_once(count_calls, write):
    path = write("data.txt", "".join(f"{i % 2} word{i} B\n" for i in range(20)))
    data = DataSettings(format="lines", train=str(path))
    first = count_dataset_words(load_data(data).train, "lower", data)
    again = count_dataset_words(load_data(data).train, "lower", data)
    assert list(again.items()) == list(first.items())
    assert len(count_calls) == 1
    other = data.model_copy(update={"pretokenized": True})
    count_dataset_words(load_data(data).train, "keep", data)
    count_dataset_words(load_data(data).train, "lower", other)
    count_dataset_words(load_data(data).dev, "lower", data)
    assert len(count_calls) == 4


def test_a_vocabulary_has_the_unknown_word_frequent_words_and_other_words():
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
