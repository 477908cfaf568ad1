import pytest
from datasets import Dataset
from perron_tests.errors import mentions
from perron_tests.tiny_bert import PIECES, tiny_tokenizer
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from perron.errors import DataError
from perron.text.encoding import TextProcessor
from perron.text.tokenizers import SubwordTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer(tiny_tokenizer())


@pytest.fixture(scope="module")
def with_special_tokens():
    return SubwordTokenizer(tiny_tokenizer(), keep_special_tokens=True)


def pieces(tokenizer, ids):
    return [tokenizer.words[token_id] for token_id in ids]


def test_ids_do_not_include_special_tokens_by_default(tokenizer):
    (ids,) = tokenizer.encode(["Unbelievably fine."])
    assert pieces(tokenizer, ids) == [
        "un",
        "##believ",
        "##a",
        "##b",
        "##ly",
        "fine",
        ".",
    ]
    assert tokenizer.encode(["", "  "]) == [[], []]


def test_special_tokens_are_detected(tokenizer):
    assert tokenizer.special_tokens == ((2,), (3,))
    plain = tiny_tokenizer()
    plain.post_processor = None
    assert SubwordTokenizer(plain).special_tokens == ((), ())


def test_tokens_have_spans_and_belong_to_words(tokenizer):
    text = "the unbelievable film, lovely"
    tokens = tokenizer.tokenize(text)
    assert [token.id for token in tokens] == tokenizer.encode([text])[0]
    assert [(t.text, t.is_continuation) for t in tokens] == [
        ("the", False),
        ("un", False),
        ("believ", True),
        ("able", True),
        ("film", False),
        (",", False),
        ("lovely", False),
    ]
    assert all(text[t.start : t.end] == t.text for t in tokens)


def test_pretokenized_words_are_kept_and_treebank_escapes_are_replaced(tokenizer):
    text = "the-film -LRB- fine -RRB-"
    tokens = tokenizer.tokenize(text, pretokenized=True)
    assert [token.id for token in tokens] == tokenizer.encode(
        [text], pretokenized=True
    )[0]
    assert pieces(tokenizer, [token.id for token in tokens]) == [
        *("the", "-", "film"),
        *("(", "fine", ")"),
    ]
    assert [t.is_continuation for t in tokens] == [
        False,
        True,
        True,
        False,
        False,
        False,
    ]
    assert [text[t.start : t.end] for t in tokens] == [
        *["the-film"] * 3,
        *["-LRB-", "fine", "-RRB-"],
    ]


def test_spans_do_not_include_the_preceding_space():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokens = SubwordTokenizer(tokenizer).tokenize("a bc")
    words = "".join(t.text if t.is_continuation else f" {t.text}" for t in tokens)
    assert words.split() == ["a", "bc"]


def test_truncation_and_padding_of_the_model_are_disabled():
    tokenizer = tiny_tokenizer()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8)
    (ids,) = SubwordTokenizer(tokenizer).encode(["the film was fine ."])
    assert len(ids) == 5
    assert tokenizer.truncation is not None  # the original is not modified


def test_a_saved_tokenizer_can_be_loaded(tokenizer):
    loaded = SubwordTokenizer.from_json(tokenizer.to_json().encode())
    assert loaded.words == PIECES
    assert loaded.encode(["unbelievable"]) == tokenizer.encode(["unbelievable"])
    with pytest.raises(DataError, match=mentions("tokenizer.json")):
        SubwordTokenizer.from_json(b"{}")


def test_a_text_is_truncated_by_subwords(tokenizer):
    processor = TextProcessor(tokenizer, "text", max_words=3, max_sentences=1)
    ((part,), truncated) = processor.tokenize("unbelievable film")
    assert [t.text for t in part.tokens] == ["un", "believ", "able"]
    assert part.truncated
    assert not truncated
    assert processor.encode(["unbelievable film"])[0]["ids"] == [
        t.id for t in part.tokens
    ]


class TestKeepSpecialTokens:
    """``[CLS]`` and ``[SEP]`` are included in the tokens of a text."""

    @pytest.mark.parametrize("pretokenized", [False, True])
    def test_special_tokens_are_added_to_the_ids(
        self, tokenizer, with_special_tokens, pretokenized
    ):
        texts = ["Unbelievably fine.", "", "the -LRB- film"]
        plain = tokenizer.encode(texts, pretokenized)
        assert with_special_tokens.encode(texts, pretokenized) == [
            [2, *ids, 3] for ids in plain
        ]

    @pytest.mark.parametrize("pretokenized", [False, True])
    def test_special_tokens_have_empty_spans(
        self, tokenizer, with_special_tokens, pretokenized
    ):
        text = "  the unbelievable film  "
        first, *tokens, last = with_special_tokens.tokenize(text, pretokenized)
        assert tokens == tokenizer.tokenize(text, pretokenized)
        assert first == ("[CLS]", 2, 2, 2, False)
        assert last == ("[SEP]", 3, 23, 23, False)
        alone = with_special_tokens.tokenize("", pretokenized)
        assert alone == [("[CLS]", 2, 0, 0, False), ("[SEP]", 3, 0, 0, False)]

    def test_a_model_without_special_tokens_adds_none(self):
        plain = tiny_tokenizer()
        plain.post_processor = None
        (ids,) = SubwordTokenizer(plain, keep_special_tokens=True).encode(["film"])
        assert pieces(SubwordTokenizer(plain), ids) == ["film"]

    @pytest.mark.parametrize(
        ("max_words", "kept"),
        [
            (1, ["[CLS]"]),
            (2, ["[CLS]", "[SEP]"]),
            (4, ["[CLS]", "un", "##believ", "[SEP]"]),
            (6, ["[CLS]", "un", "##believ", "##able", "film", "[SEP]"]),
        ],
    )
    def test_truncation_keeps_the_last_special_token(
        self, with_special_tokens, max_words, kept
    ):
        processor = TextProcessor(with_special_tokens, "text", max_words, 1)
        (row,) = processor.encode(["unbelievable film"])
        ((part,), _) = processor.tokenize("unbelievable film")
        assert pieces(with_special_tokens, row["ids"]) == kept
        assert [t.id for t in part.tokens] == row["ids"]
        assert part.truncated == (max_words < 6)

    def test_a_sentence_of_only_special_tokens_is_dropped(self, with_special_tokens):
        text = "the film. \x01 \n fine"
        processor = TextProcessor(with_special_tokens, "document", 9, 9)
        (row,) = processor.encode([text])
        assert row["lengths"] == [5, 3]
        assert pieces(with_special_tokens, row["ids"]) == [
            *("[CLS]", "the", "film", ".", "[SEP]"),
            *("[CLS]", "fine", "[SEP]"),
        ]
        sequences = [part.tokens for part in processor.tokenize(text).sequences]
        assert [t.id for tokens in sequences for t in tokens] == row["ids"]
        assert [(tokens[0].start, tokens[-1].end) for tokens in sequences] == [
            (0, 9),
            (14, 18),
        ]
        assert processor.encode([""]) == [{"ids": [], "lengths": []}]

    def test_special_tokens_are_part_of_the_cache_key(
        self, tokenizer, with_special_tokens
    ):
        dataset = Dataset.from_dict({"text": ["film"], "label": [0], "line": [1]})
        rows = [
            TextProcessor(tokenizer, "text", 9, 9).encode_dataset(dataset)["ids"][0]
            for tokenizer in (tokenizer, with_special_tokens)
        ]
        assert [len(ids) for ids in rows] == [1, 3]

    def test_keep_special_tokens_is_not_saved(self, with_special_tokens):
        content = with_special_tokens.to_json().encode()
        loaded = SubwordTokenizer.from_json(content, keep_special_tokens=True)
        assert loaded.encode(["a"])[0][0] == 2
        assert SubwordTokenizer.from_json(content).encode(["a"])[0][0] != 2
