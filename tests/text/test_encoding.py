import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from perron.text.encoding import TextProcessor, TextSettings
from perron.text.tokenizers import UNKNOWN, WordTokenizer

WORDS = WordTokenizer.from_words(
    [UNKNOWN, "a", "be", "see", ".", "(", "do", "n't"], "lower"
)
IDS = {word: index for index, word in enumerate(WORDS.words)}
SEPARATOR = "<sssss>"


def processor(kind, max_words=4, max_sentences=3, **options):
    return TextProcessor(WORDS, kind, max_words, max_sentences, **options)


def ids_of(words):
    return [IDS.get(word, 0) for word in words.split()]


def test_a_text_is_encoded_and_truncated():
    rows = processor("text").encode(["A be. x", "a a be be a", "", " \n"])
    assert rows == [
        {"ids": ids_of("a be . x")},
        {"ids": ids_of("a a be be")},
        {"ids": []},
        {"ids": []},
    ]


def test_the_texts_of_a_pair_are_truncated_separately():
    rows = processor("pair").encode(["a", "a a be be ."], ["be . . a a", ""])
    assert rows == [
        {"ids": ids_of("a"), "pair_ids": ids_of("be . . a")},
        {"ids": ids_of("a a be be"), "pair_ids": []},
    ]


def test_the_sentences_of_a_document_and_their_words_are_truncated():
    rows = processor("document").encode(["A be a be. Be. See. A.", "", "a<br>", "\n"])
    assert rows == [
        {"ids": ids_of("a be a be be . see ."), "lengths": [4, 2, 2]},
        {"ids": [], "lengths": []},
        {"ids": ids_of("a"), "lengths": [1]},
        {"ids": [], "lengths": []},
    ]


def test_for_input_changes_only_the_form_of_the_input():
    raw = processor("document", max_words=9)
    converted = raw.for_input(pretokenized=True, sentence_separator=SEPARATOR)
    assert converted == processor(
        "document", 9, pretokenized=True, sentence_separator=SEPARATOR
    )
    text = f"don't -LRB- a . be {SEPARATOR} <br /> {SEPARATOR} see"
    assert converted.encode([text]) == [
        {"ids": ids_of("x ( a . be see"), "lengths": [5, 1]},
    ]
    assert raw.encode(["don't"]) == [{"ids": ids_of("do n't"), "lengths": [2]}]


def test_spans_are_relative_to_the_document_not_to_the_sentence():
    text = "A b!\n\nDon't -LRB-."
    result = processor("document", max_words=3).tokenize(text)
    assert [[token.text for token in part.tokens] for part in result.sequences] == [
        ["A", "b", "!"],
        ["Do", "n't", "-LRB-"],
    ]
    tokens = [token for part in result.sequences for token in part.tokens]
    spans = [(token.start, token.end) for token in tokens]
    assert [text[start:end] for start, end in spans] == [t.text for t in tokens]
    assert spans[3] == (6, 8)


def test_truncation_is_reported():
    document = processor("document", max_words=3, max_sentences=2)
    result = document.tokenize("a b see! a b")
    assert [part.truncated for part in result.sequences] == [True, False]
    assert not result.truncated
    result = document.tokenize("a b! see! a!")
    assert [part.truncated for part in result.sequences] == [False, False]
    assert result.truncated
    pair = processor("pair", max_words=3).tokenize("a b c", "a b c <br/> d")
    assert [part.truncated for part in pair.sequences] == [False, True]
    (alone,) = processor("text", max_words=3).tokenize("a b c <br/>").sequences
    assert not alone.truncated


PIECES = [*"aBx .!\n", "<br>", SEPARATOR, "Don't ", "-LRB-", "e\u0301", "\u00a0"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=15).map("".join)


@settings(deadline=None, max_examples=200)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=3),
    pretokenized=st.booleans(),
    separator=st.sampled_from([None, SEPARATOR]),
    max_words=st.integers(1, 5),
    max_sentences=st.integers(1, 3),
)
def test_tokenize_and_encode_return_the_same_ids(
    texts, pretokenized, separator, max_words, max_sentences
):
    def make(kind):
        return processor(kind, max_words, max_sentences).for_input(
            pretokenized, separator
        )

    def ids(result):
        return [[token.id for token in part.tokens] for part in result.sequences]

    pairs = texts[::-1]
    for text, pair, alone, both, document in zip(
        texts,
        pairs,
        make("text").encode(texts),
        make("pair").encode(texts, pairs),
        make("document").encode(texts),
        strict=True,
    ):
        assert [alone["ids"]] == ids(make("text").tokenize(text))
        assert [both["ids"], both["pair_ids"]] == ids(make("pair").tokenize(text, pair))
        sentences = ids(make("document").tokenize(text))
        assert document["lengths"] == list(map(len, sentences))
        assert document["ids"] == [token_id for part in sentences for token_id in part]
        assert 0 not in document["lengths"]
        assert len(sentences) <= max_sentences
        assert len(alone["ids"]) <= max_words


@pytest.mark.parametrize("kind", ["text", "pair", "document"])
def test_an_encoded_dataset_has_ids_labels_and_lines(kind):
    texts = [f"a b{i}. c" * (i % 3) for i in range(1200)]
    columns = {"text": texts, "label": [i % 4 for i in range(1200)]}
    columns["line"] = list(range(1, 1201))
    if kind == "pair":
        columns["pair"] = texts[::-1]
    dataset = Dataset.from_dict(columns).select(range(1199, -1, -1))
    encoded = processor(kind).encode_dataset(dataset)
    expected = processor(kind).encode(texts[::-1], texts if kind == "pair" else None)
    assert encoded.remove_columns(["label", "line"]).to_list() == expected
    assert encoded["label"][:] == [i % 4 for i in range(1200)][::-1]
    assert encoded["line"][:] == list(range(1200, 0, -1))


def test_a_dataset_is_encoded_once_per_processor(monkeypatch):
    dataset = Dataset.from_dict({"text": ["see. a"], "label": [0], "line": [1]})
    calls = []
    encode = TextProcessor.encode

    def spy(self, texts, pairs=None):
        calls.append(self)
        return encode(self, texts, pairs)

    monkeypatch.setattr(TextProcessor, "encode", spy)
    other_words = WordTokenizer.from_words([UNKNOWN, "be"], "lower")
    processors = [
        processor("document"),
        processor("text"),
        processor("document", max_words=1),
        processor("document", max_sentences=1),
        processor("document", pretokenized=True),
        processor("document", sentence_separator=SEPARATOR),
        TextProcessor(other_words, "document", 4, 3),
    ]
    first = [p.encode_dataset(dataset).to_list() for p in processors]
    assert [p.encode_dataset(dataset).to_list() for p in processors] == first
    assert calls == processors
    processor("document").encode_dataset(dataset.select([0, 0]))
    assert len(calls) == len(processors) + 1


@pytest.mark.parametrize(
    "wrong", [{"case": "upper"}, {"min_count": 0}, {"max_words": 0}, {"maxwords": 3}]
)
def test_invalid_settings_are_rejected(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        TextSettings(**wrong)
