"""Text to words with their ids and places, by a word level of `tokenizers`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel

from perron.errors import DataError

UNKNOWN = "[UNK]"
Case = Literal["keep", "lower"]

# Marks of the Penn Treebank and of web pages, as they are in plain text.
_PLAIN = [
    (Regex(r"(?i)-LRB-"), "("),
    (Regex(r"(?i)-RRB-"), ")"),
    (Regex(r"(?i)-LSB-"), "["),
    (Regex(r"(?i)-RSB-"), "]"),
    (Regex(r"(?i)-LCB-"), "{"),
    (Regex(r"(?i)-RCB-"), "}"),
    (Regex(r"\\(?=[/*])"), ""),
    (Regex(r"``|''|[“”„«»]"), '"'),
    (Regex(r"[\u2018\u2019\u201B]"), "'"),
    (Regex(r"(?i)<br\s*/?>"), " "),
]

_MARKS = re.compile(r"-[LR][RSC]B-|``|''", re.IGNORECASE)

# What one word is, the first alternative that fits. As the Penn Treebank has it: "n't"
# and "'s" are words, "can't" is "ca n't", each mark is a word, and so is "..." or "--".
_WORD = "|".join(
    [
        r"https?://\S+",
        r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
        r"(?i:can)(?=(?i:not)\b)",
        r"(?:\p{L}\.){2,}",  # U.S.
        r"(?i:mr|mrs|ms|dr|jr|sr|st|vs|etc|prof)\.",
        r"(?<![\w'])[b-hj-zB-HJ-Z]\.(?=\s+\w)",  # an initial
        r"'\d0s\b",
        r"\d+(?:[.,:/]\d+)*(?!-?\w)",
        r"\w+?(?=(?i:n't)\b)",
        r"(?i:n't)\b",
        r"'(?i:s|m|d|re|ve|ll|em|til|tis|twas)\b",
        r"\w+(?:[-.&]\w+|'(?!(?i:s|m|d|re|ve|ll)\b)\w+)*",
        r"\.{2,}",
        r"-{2,}",
        r"\S",
    ]
)


class Word(NamedTuple):
    """A word and where in the text it stands."""

    text: str
    id: int
    start: int
    end: int


class WordTokenizer:
    """Splits texts into words and numbers them; id 0 is any unknown word.

    Raw text is split as the Penn Treebank does; text that is already tokenised is
    split at blanks and nowhere else. In both, marks such as ``-LRB-`` become what they
    stand for.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._raw = tokenizer
        self._tokenised = Tokenizer.from_str(tokenizer.to_str())
        self._tokenised.pre_tokenizer = at_blanks()

    @classmethod
    def of_words(cls, words: Sequence[str], case: Case) -> "WordTokenizer":
        """Make one for a vocabulary; the first word must be `UNKNOWN`."""
        if not words or words[0] != UNKNOWN:
            raise ValueError(f"a vocabulary begins with {UNKNOWN!r}")
        return cls(untrained({word: row for row, word in enumerate(words)}, case))

    @property
    def words(self) -> list[str]:
        """The vocabulary, in the order of the ids."""
        rows = self._raw.get_vocab(with_added_tokens=False)
        return sorted(rows, key=rows.__getitem__)

    def encode(self, texts: Sequence[str], tokenised: bool = False) -> list[list[int]]:
        """Return the ids of each text's words."""
        tokenizer = self._tokenised if tokenised else self._raw
        encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def find_words(self, text: str, tokenised: bool = False) -> list[Word]:
        """Return the words of a text as they stand in it, with their places."""
        tokenizer = self._tokenised if tokenised else self._raw
        encoding = tokenizer.encode(text, add_special_tokens=False)
        # A mark that was replaced is said to stand at its last character.
        starts = {mark.end(): mark.start() for mark in _MARKS.finditer(text)}
        words = []
        for row, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            begin = starts.get(end, start)
            words.append(Word(text[begin:end], row, begin, end))
        return words

    def to_json(self) -> str:
        """Return what tokenizer.json holds."""
        return self._raw.to_str(pretty=True)

    @classmethod
    def load(cls, path: Path) -> "WordTokenizer":
        """Read a tokenizer.json."""
        try:
            return cls(Tokenizer.from_str(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise DataError("is missing: no text can be read without it", path) from (
                error
            )
        except Exception as error:  # tokenizers raises nothing more special
            raise DataError(f"is no tokenizer: {error}", path) from error


def at_blanks() -> pre_tokenizers.PreTokenizer:
    """Split tokenised text; a no-break space is part of a word, as in SST's "8 1/2"."""
    return pre_tokenizers.Split(Regex(r"[ \t\r\n]+"), behavior="removed")


def untrained(vocabulary: dict[str, int], case: Case) -> Tokenizer:
    """Return a tokenizer of raw text that knows these words."""
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    steps += [normalizers.Replace(mark, plain) for mark, plain in _PLAIN]
    if case == "lower":
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(_WORD), behavior="removed", invert=True
    )
    return tokenizer
