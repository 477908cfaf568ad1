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
def subwords():
    return SubwordTokenizer(tiny_tokenizer())


@pytest.fixture(scope="module")
def marked():
    return SubwordTokenizer(tiny_tokenizer(), keep_special_tokens=True)


def pieces(subwords, ids):
    return [subwords.words[row] for row in ids]


def test_ids_are_those_of_the_text_alone(subwords):
    (ids,) = subwords.encode(["Unbelievably fine."])
    assert pieces(subwords, ids) == [
        "un",
        "##believ",
        "##a",
        "##b",
        "##ly",
        "fine",
        ".",
    ]
    assert subwords.encode(["", "  "]) == [[], []]


def test_the_marks_are_known(subwords):
    assert subwords.marks == ((2,), (3,))
    plain = tiny_tokenizer()
    plain.post_processor = None
    assert SubwordTokenizer(plain).marks == ((), ())


def test_pieces_know_their_places_and_their_words(subwords):
    text = "the unbelievable film, lovely"
    found = subwords.find_words(text)
    assert [word.id for word in found] == subwords.encode([text])[0]
    assert [(w.text, w.goes_on) for w in found] == [
        ("the", False),
        ("un", False),
        ("believ", True),
        ("able", True),
        ("film", False),
        (",", False),
        ("lovely", False),
    ]
    assert all(text[word.start : word.end] == word.text for word in found)


def test_tokenized_words_stay_whole_and_marks_of_treebanks_become_plain(subwords):
    text = "the-film -LRB- fine -RRB-"
    found = subwords.find_words(text, pretokenized=True)
    assert [word.id for word in found] == subwords.encode([text], pretokenized=True)[0]
    assert pieces(subwords, [word.id for word in found]) == [
        *("the", "-", "film"),
        *("(", "fine", ")"),
    ]
    assert [word.goes_on for word in found] == [False, True, True, False, False, False]
    assert [text[word.start : word.end] for word in found] == [
        *["the-film"] * 3,
        *["-LRB-", "fine", "-RRB-"],
    ]


def test_a_blank_that_belongs_to_a_piece_is_not_in_its_place():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({mark: row for row, mark in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    found = SubwordTokenizer(tokenizer).find_words("a bc")
    words = "".join(word.text if word.goes_on else f" {word.text}" for word in found)
    assert words.split() == ["a", "bc"]


def test_settings_of_the_model_that_cut_or_pad_are_left_behind():
    tokenizer = tiny_tokenizer()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8)
    (ids,) = SubwordTokenizer(tokenizer).encode(["the film was fine ."])
    assert len(ids) == 5
    assert tokenizer.truncation is not None  # nor was the one that was given changed


def test_it_is_saved_and_read_as_it_was(subwords):
    again = SubwordTokenizer.from_json(subwords.to_json().encode())
    assert again.words == PIECES
    assert again.encode(["unbelievable"]) == subwords.encode(["unbelievable"])
    with pytest.raises(DataError, match=mentions("tokenizer.json")):
        SubwordTokenizer.from_json(b"{}")


def test_a_text_is_cut_by_pieces(subwords):
    ids = TextProcessor(subwords, "text", max_words=3, max_sentences=1)
    ((part,), cut) = ids.find_words("unbelievable film")
    assert [word.text for word in part.words] == ["un", "believ", "able"]
    assert part.truncated
    assert not cut
    assert ids.rows(["unbelievable film"])[0]["ids"] == [w.id for w in part.words]


class TestMarksAsWords:
    """``[CLS]`` and ``[SEP]`` among the words of a text."""

    @pytest.mark.parametrize("pretokenized", [False, True])
    def test_they_stand_around_the_ids_of_the_text(
        self, subwords, marked, pretokenized
    ):
        texts = ["Unbelievably fine.", "", "the -LRB- film"]
        plain = subwords.encode(texts, pretokenized)
        assert marked.encode(texts, pretokenized) == [[2, *ids, 3] for ids in plain]

    @pytest.mark.parametrize("pretokenized", [False, True])
    def test_they_take_up_no_room_in_the_text(self, subwords, marked, pretokenized):
        text = "  the unbelievable film  "
        first, *found, last = marked.find_words(text, pretokenized)
        assert found == subwords.find_words(text, pretokenized)
        assert first == ("[CLS]", 2, 2, 2, False)
        assert last == ("[SEP]", 3, 23, 23, False)
        alone = marked.find_words("", pretokenized)
        assert alone == [("[CLS]", 2, 0, 0, False), ("[SEP]", 3, 0, 0, False)]

    def test_a_model_without_marks_has_none_to_pool(self):
        plain = tiny_tokenizer()
        plain.post_processor = None
        (ids,) = SubwordTokenizer(plain, keep_special_tokens=True).encode(["film"])
        assert pieces(SubwordTokenizer(plain), ids) == ["film"]

    @pytest.mark.parametrize(
        ("most", "kept"),
        [
            (1, ["[CLS]"]),
            (2, ["[CLS]", "[SEP]"]),
            (4, ["[CLS]", "un", "##believ", "[SEP]"]),
            (6, ["[CLS]", "un", "##believ", "##able", "film", "[SEP]"]),
        ],
    )
    def test_a_text_that_is_cut_keeps_its_last_mark(self, marked, most, kept):
        ids = TextProcessor(marked, "text", max_words=most, max_sentences=1)
        (row,) = ids.rows(["unbelievable film"])
        ((part,), _) = ids.find_words("unbelievable film")
        assert pieces(marked, row["ids"]) == kept
        assert [word.id for word in part.words] == row["ids"]
        assert part.truncated == (most < 6)

    def test_a_sentence_that_is_nothing_but_marks_is_left_out(self, marked):
        text = "the film. \x01 \n fine"
        ids = TextProcessor(marked, "document", max_words=9, max_sentences=9)
        (row,) = ids.rows([text])
        assert row["lengths"] == [5, 3]
        assert pieces(marked, row["ids"]) == [
            *("[CLS]", "the", "film", ".", "[SEP]"),
            *("[CLS]", "fine", "[SEP]"),
        ]
        found = [part.words for part in ids.find_words(text).parts]
        assert [word.id for words in found for word in words] == row["ids"]
        assert [(words[0].start, words[-1].end) for words in found] == [
            (0, 9),
            (14, 18),
        ]
        assert ids.rows([""]) == [{"ids": [], "lengths": []}]

    def test_ids_without_them_are_not_taken_from_the_cache(self, subwords, marked):
        dataset = Dataset.from_dict({"text": ["film"], "label": [0], "line": [1]})
        rows = [
            TextProcessor(tokenizer, "text", 9, 9).encode_dataset(dataset)["ids"][0]
            for tokenizer in (subwords, marked)
        ]
        assert [len(ids) for ids in rows] == [1, 3]

    def test_they_are_asked_for_again_when_it_is_read(self, marked):
        content = marked.to_json().encode()
        again = SubwordTokenizer.from_json(content, keep_special_tokens=True)
        assert again.encode(["a"])[0][0] == 2
        assert SubwordTokenizer.from_json(content).encode(["a"])[0][0] != 2
