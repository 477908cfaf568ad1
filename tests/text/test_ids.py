import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from perron.text.encoding import TextProcessor, TextSettings
from perron.text.tokenizers import UNKNOWN, WordTokenizer

WORDS = WordTokenizer.of_words(
    [UNKNOWN, "a", "be", "see", ".", "(", "do", "n't"], "lower"
)
ROW = {word: row for row, word in enumerate(WORDS.words)}
MARK = "<sssss>"


def processor(kind, max_words=4, max_sentences=3, **reading):
    return TextProcessor(WORDS, kind, max_words, max_sentences, **reading)


def rows_of(words):
    return [ROW.get(word, 0) for word in words.split()]


def test_a_text_is_the_ids_of_its_words_cut_to_the_length():
    rows = processor("text").rows(["A be. x", "a a be be a", "", " \n"])
    assert rows == [
        {"ids": rows_of("a be . x")},
        {"ids": rows_of("a a be be")},
        {"ids": []},
        {"ids": []},
    ]


def test_a_pair_is_two_texts_each_cut_on_its_own():
    rows = processor("pair").rows(["a", "a a be be ."], ["be . . a a", ""])
    assert rows == [
        {"ids": rows_of("a"), "pair_ids": rows_of("be . . a")},
        {"ids": rows_of("a a be be"), "pair_ids": []},
    ]


def test_a_document_is_its_sentences_cut_to_their_length_and_number():
    rows = processor("document").rows(["A be a be. Be. See. A.", "", "a<br>", "\n"])
    assert rows == [
        {"ids": rows_of("a be a be be . see ."), "lengths": [4, 2, 2]},
        {"ids": [], "lengths": []},
        {"ids": rows_of("a"), "lengths": [1]},
        {"ids": [], "lengths": []},
    ]


def test_reading_changes_how_texts_come_and_nothing_else():
    raw = processor("document", max_words=9)
    marked = raw.reading(pretokenized=True, sentence_separator=MARK)
    assert marked == processor(
        "document", 9, pretokenized=True, sentence_separator=MARK
    )
    text = f"don't -LRB- a . be {MARK} <br /> {MARK} see"
    assert marked.rows([text]) == [
        {"ids": rows_of("x ( a . be see"), "lengths": [5, 1]},
    ]
    assert raw.rows(["don't"]) == [{"ids": rows_of("do n't"), "lengths": [2]}]


def test_words_are_found_in_the_whole_text_not_in_their_sentence():
    text = "A b!\n\nDon't -LRB-."
    found = processor("document", max_words=3).find_words(text)
    assert [[word.text for word in part.words] for part in found.parts] == [
        ["A", "b", "!"],
        ["Do", "n't", "-LRB-"],
    ]
    words = [word for part in found.parts for word in part.words]
    places = [(word.start, word.end) for word in words]
    assert [text[start:end] for start, end in places] == [word.text for word in words]
    assert places[3] == (6, 8)


def test_what_is_cut_is_said():
    reads = processor("document", max_words=3, max_sentences=2)
    found = reads.find_words("a b see! a b")
    assert [part.truncated for part in found.parts] == [True, False]
    assert not found.truncated
    found = reads.find_words("a b! see! a!")
    assert [part.truncated for part in found.parts] == [False, False]
    assert found.truncated
    pair = processor("pair", max_words=3).find_words("a b c", "a b c <br/> d")
    assert [part.truncated for part in pair.parts] == [False, True]
    (alone,) = processor("text", max_words=3).find_words("a b c <br/>").parts
    assert not alone.truncated


PIECES = [*"aBx .!\n", "<br>", MARK, "Don't ", "-LRB-", "e\u0301", "\u00a0"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=15).map("".join)


@settings(deadline=None, max_examples=200)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=3),
    pretokenized=st.booleans(),
    mark=st.sampled_from([None, MARK]),
    max_words=st.integers(1, 5),
    max_sentences=st.integers(1, 3),
)
def test_the_words_that_are_found_are_those_whose_ids_the_model_gets(
    texts, pretokenized, mark, max_words, max_sentences
):
    def of(kind):
        return processor(kind, max_words, max_sentences).reading(pretokenized, mark)

    def numbers(found):
        return [[word.id for word in part.words] for part in found.parts]

    pairs = texts[::-1]
    for text, pair, alone, both, document in zip(
        texts,
        pairs,
        of("text").rows(texts),
        of("pair").rows(texts, pairs),
        of("document").rows(texts),
        strict=True,
    ):
        assert [alone["ids"]] == numbers(of("text").find_words(text))
        assert [both["ids"], both["pair_ids"]] == numbers(
            of("pair").find_words(text, pair)
        )
        sentences = numbers(of("document").find_words(text))
        assert document["lengths"] == list(map(len, sentences))
        assert document["ids"] == [row for ids in sentences for row in ids]
        assert 0 not in document["lengths"]
        assert len(sentences) <= max_sentences
        assert len(alone["ids"]) <= max_words


@pytest.mark.parametrize("kind", ["text", "pair", "document"])
def test_an_encoded_dataset_is_the_rows_with_label_and_line(kind):
    texts = [f"a b{i}. c" * (i % 3) for i in range(1200)]
    columns = {"text": texts, "label": [i % 4 for i in range(1200)]}
    columns["line"] = list(range(1, 1201))
    if kind == "pair":
        columns["pair"] = texts[::-1]
    dataset = Dataset.from_dict(columns).select(range(1199, -1, -1))
    encoded = processor(kind).encode_dataset(dataset)
    want = processor(kind).rows(texts[::-1], texts if kind == "pair" else None)
    assert encoded.remove_columns(["label", "line"]).to_list() == want
    assert encoded["label"][:] == [i % 4 for i in range(1200)][::-1]
    assert encoded["line"][:] == list(range(1200, 0, -1))


def test_a_dataset_is_encoded_once_for_each_way_to_do_it(monkeypatch):
    dataset = Dataset.from_dict({"text": ["see. a"], "label": [0], "line": [1]})
    calls = []
    plain = TextProcessor.rows

    def spy(self, texts, pairs=None):
        calls.append(self)
        return plain(self, texts, pairs)

    monkeypatch.setattr(TextProcessor, "rows", spy)
    other_words = WordTokenizer.of_words([UNKNOWN, "be"], "lower")
    ways = [
        processor("document"),
        processor("text"),
        processor("document", max_words=1),
        processor("document", max_sentences=1),
        processor("document", pretokenized=True),
        processor("document", sentence_separator=MARK),
        TextProcessor(other_words, "document", 4, 3),
    ]
    first = [way.encode_dataset(dataset).to_list() for way in ways]
    assert [way.encode_dataset(dataset).to_list() for way in ways] == first
    assert calls == ways
    processor("document").encode_dataset(dataset.select([0, 0]))
    assert len(calls) == len(ways) + 1


@pytest.mark.parametrize(
    "wrong", [{"case": "upper"}, {"min_count": 0}, {"max_words": 0}, {"maxwords": 3}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        TextSettings(**wrong)
