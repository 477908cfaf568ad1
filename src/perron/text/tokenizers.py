"""Tokenizers: words of a vocabulary, and subwords of a pretrained model."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel

from perron.errors import DataError

UNKNOWN = "[UNK]"
Case = Literal["keep", "lower"]

AT_BLANKS = r"\S[^ \t\r\n]*"  # a word of pretokenized text

# Marks of the Penn Treebank and of web pages, as they are in plain text.
_PLAIN = [
    (Regex(r"(?i)-LRB-"), "("),
    (Regex(r"(?i)-RRB-"), ")"),
    (Regex(r"(?i)-LSB-"), "["),
    (Regex(r"(?i)-RSB-"), "]"),
    (Regex(r"(?i)-LCB-"), "{"),
    (Regex(r"(?i)-RCB-"), "}"),
    (Regex(r"\\(?=[/*])"), ""),
    (Regex(r"[`\u00B4\u2018\u2019\u201B]"), "'"),
    (Regex(r"''|[“”„«»]"), '"'),
    (Regex(r"(?i)<br\s*/?>"), " "),
]

# Those of them that are several characters and become one.
_LONG_MARK = re.compile(
    r"-[LR][RSC]B-|\\[/*]|['`\u00B4\u2018\u2019\u201B]{2}", re.IGNORECASE
)

# What one word is, the first alternative that fits. As the Penn Treebank has it: "n't"
# and "'s" are words, "can't" is "ca n't", each mark is a word, and so is "..." or "--".
_WORD = "|".join(
    [
        r"(?i:https?://|www\.)[^\s<>\"]*[\w/]",
        r"(?<![\w.+-])\w[\w.+-]*@[\w-]+(?:\.[\w-]+)+",
        r"(?i:can)(?=(?i:not)\b)",
        r"(?:\p{L}\.){2,}(?!\p{L})(?:-\w+)*",  # U.S., U.S.-born
        r"(?i:mr|mrs|ms|dr|jr|sr|st|vs|etc|prof|ph\.d|inc|bros|sept)\.(?!\.)",
        r"(?<![\w'])[b-hj-zB-HJ-Z]\.(?=\s+\w)",  # an initial
        r"'\d0s\b",
        r"\w+?(?=(?i:n't)\b)",
        r"(?i:n't)\b",
        r"'(?i:s|m|d|re|ve|ll|em|til|tis|twas)\b",
        r"'(?i:n)\b'?",  # rock 'n' roll
        r"\w+(?:[-.&/]\w+|(?<=\d)[,:](?=\d)\w+|'(?!(?i:s|m|d|re|ve|ll)\b)\w+)*",
        r"\.{2,}",
        r"-{2,}",
        # A flag, for which \X looks at all the letters of flags before it.
        "[\U0001f1e6-\U0001f1ff]{1,2}" r"\p{M}*",
        r"(?!\s)\X",  # a mark, or an emoji with what changes it
    ]
)


class Word(NamedTuple):
    """A word, or a piece of one, and where in the text it stands."""

    text: str
    id: int
    start: int
    end: int
    goes_on: bool = False  # a piece of the same word as the one before it


class TextTokenizer(ABC):
    """What turns texts into the ids that a model reads."""

    _raw: Tokenizer

    @property
    def words(self) -> list[str]:
        """The vocabulary, in the order of the ids."""
        rows = self._raw.get_vocab(with_added_tokens=False)
        return sorted(rows, key=rows.__getitem__)

    @abstractmethod
    def encode(
        self, texts: Sequence[str], pretokenized: bool = False
    ) -> list[list[int]]:
        """Return the ids of each text's words, or of their pieces."""

    @abstractmethod
    def find_words(self, text: str, pretokenized: bool = False) -> list[Word]:
        """Return the words of a text, or their pieces, with their places."""

    def to_json(self) -> str:
        """Return what tokenizer.json holds."""
        return self._raw.to_str(pretty=True)


class WordTokenizer(TextTokenizer):
    """Splits texts into words and numbers them; id 0 is any unknown word.

    Raw text is split as the Penn Treebank does; text that is already pretokenized is
    split at blanks and nowhere else. In both, marks such as ``-LRB-`` become what they
    stand for.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._raw = tokenizer
        self._tokenized = Tokenizer.from_str(tokenizer.to_str())
        self._tokenized.pre_tokenizer = at_blanks()

    @classmethod
    def of_words(cls, words: Sequence[str], case: Case) -> "WordTokenizer":
        """Make one for a vocabulary; the first word must be `UNKNOWN`."""
        if not words or words[0] != UNKNOWN:
            raise ValueError(f"a vocabulary begins with {UNKNOWN!r}")
        return cls(untrained({word: row for row, word in enumerate(words)}, case))

    def encode(
        self, texts: Sequence[str], pretokenized: bool = False
    ) -> list[list[int]]:
        """Return the ids of each text's words."""
        tokenizer = self._tokenized if pretokenized else self._raw
        encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def find_words(self, text: str, pretokenized: bool = False) -> list[Word]:
        """Return the words of a text as they stand in it, with their places."""
        tokenizer = self._tokenized if pretokenized else self._raw
        encoding = tokenizer.encode(text, add_special_tokens=False)
        # To `tokenizers`, a long mark stands at its last character and an accented
        # letter without the accent that follows it.
        starts = {mark.end() - 1: mark.start() for mark in _LONG_MARK.finditer(text)}
        begins = [starts.get(start, start) for start, _ in encoding.offsets]
        limits = [*begins, len(text)][1:]
        words = []
        for row, begin, (_, end), limit in zip(
            encoding.ids, begins, encoding.offsets, limits, strict=True
        ):
            while end < limit and not text[end].isspace() and text[end] != "<":
                end += 1
            words.append(Word(text[begin:end], row, begin, end))
        return words

    @classmethod
    def from_json(
        cls, content: bytes, where: str | Path = "tokenizer.json"
    ) -> "WordTokenizer":
        """Read the content of a tokenizer.json; errors name the file ``where``."""
        tokenizer = read_tokenizer(content, where)
        if tokenizer.token_to_id(UNKNOWN) != 0:
            raise DataError(f"is not a word tokenizer: {UNKNOWN} is not id 0", where)
        return cls(tokenizer)


def read_tokenizer(content: bytes, where: str | Path) -> Tokenizer:
    """Read the content of a tokenizer.json of any kind."""
    try:
        return Tokenizer.from_str(content.decode())
    except Exception as error:  # tokenizers raises nothing more special
        raise DataError(f"is not a tokenizer: {error}", where) from error


def plain_marks() -> list[normalizers.Normalizer]:
    """Return the steps that turn marks of treebanks into what they stand for."""
    return [normalizers.Replace(mark, plain) for mark, plain in _PLAIN]


def at_blanks() -> pre_tokenizers.PreTokenizer:
    """Split pretokenized text; a no-break space is part of a word, as in SST's "8 1/2"."""
    return pre_tokenizers.Split(Regex(AT_BLANKS), behavior="removed", invert=True)


def untrained(vocabulary: dict[str, int], case: Case) -> Tokenizer:
    """Return a tokenizer of raw text that knows these words."""
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    steps += plain_marks()
    if case == "lower":
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(_WORD), behavior="removed", invert=True
    )
    return tokenizer


_TOKENIZED_WORD = re.compile(AT_BLANKS)


class SpecialTokens(NamedTuple):
    """Ids that a model wants around each text, such as ``[CLS]`` and ``[SEP]``."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class SubwordTokenizer(TextTokenizer):
    """Splits texts as a pretrained model wants it, and knows which pieces are a word.

    Unless ``keep_special_tokens``, ids are those of the text alone, and the marks around it are the
    encoder's business. In pretokenized text every word is what stands between blanks, and
    marks of treebanks such as ``-LRB-`` become what they stand for, as pretraining
    never saw them.

    Attributes:
        around: the marks that are among the ids of each text, as words of it.
    """

    def __init__(self, tokenizer: Tokenizer, keep_special_tokens: bool = False) -> None:
        """Take over a tokenizer.

        Args:
            tokenizer: of the model; it is left as it is.
            keep_special_tokens: give the marks around each text as words of it.
        """
        # A copy, with no cut and no padding: a model's own settings may have both.
        self._raw = Tokenizer.from_str(tokenizer.to_str())
        self._raw.no_truncation()
        self._raw.no_padding()
        self._tokenized = Tokenizer.from_str(self._raw.to_str())
        own = self._tokenized.normalizer
        steps = [*plain_marks(), *([] if own is None else [own])]
        self._tokenized.normalizer = normalizers.Sequence(steps)
        self.around = (
            self.special_tokens if keep_special_tokens else SpecialTokens((), ())
        )

    @classmethod
    def from_json(
        cls,
        content: bytes,
        where: str | Path = "tokenizer.json",
        keep_special_tokens: bool = False,
    ) -> "SubwordTokenizer":
        """Read the content of a tokenizer.json; errors name the file ``where``.

        The file does not say whether texts are ``keep_special_tokens``.
        """
        return cls(read_tokenizer(content, where), keep_special_tokens)

    @property
    def words(self) -> list[str]:
        """The vocabulary, in the order of the ids, with the marks."""
        rows = self._raw.get_vocab(with_added_tokens=True)
        return sorted(rows, key=rows.__getitem__)

    @property
    def special_tokens(self) -> SpecialTokens:
        """What the model wants around each text."""
        plain = self._raw.encode("a", add_special_tokens=False).ids
        marked = self._raw.encode("a", add_special_tokens=True).ids
        begin = next(
            place
            for place in range(len(marked))
            if marked[place : place + len(plain)] == plain
        )
        return SpecialTokens(tuple(marked[:begin]), tuple(marked[begin + len(plain) :]))

    def encode(
        self, texts: Sequence[str], pretokenized: bool = False
    ) -> list[list[int]]:
        """Return the ids of each text's subwords, with the marks around them."""
        if pretokenized:
            split = [_TOKENIZED_WORD.findall(text) for text in texts]
            encoded = self._tokenized.encode_batch_fast(
                split, is_pretokenized=True, add_special_tokens=False
            )
        else:
            encoded = self._raw.encode_batch_fast(list(texts), add_special_tokens=False)
        before, after = self.around
        return [[*before, *encoding.ids, *after] for encoding in encoded]

    def find_words(self, text: str, pretokenized: bool = False) -> list[Word]:
        """Return the subwords of a text; those of one word follow one another.

        A mark stands where the text begins or ends, and takes up no room there.
        """
        found = self._find_tokenized(text) if pretokenized else self._find_raw(text)
        begin, end = (found[0].start, found[-1].end) if found else (0, 0)
        before, after = self.around
        return [
            *(self._mark(row, begin) for row in before),
            *found,
            *(self._mark(row, end) for row in after),
        ]

    def _mark(self, row: int, place: int) -> Word:
        return Word(self._raw.id_to_token(row) or "", row, place, place)

    def _find_raw(self, text: str) -> list[Word]:
        encoding = self._raw.encode(text, add_special_tokens=False)
        found: list[Word] = []
        before = None
        for row, (start, end), word in zip(
            encoding.ids, encoding.offsets, encoding.word_ids, strict=True
        ):
            while start < end and text[start].isspace():  # some count the blank before
                start += 1
            goes_on = word is not None and word == before
            found.append(Word(text[start:end], row, start, end, goes_on))
            before = word
        return found

    def _find_tokenized(self, text: str) -> list[Word]:
        spans = [match.span() for match in _TOKENIZED_WORD.finditer(text)]
        encoding = self._tokenized.encode(
            [text[start:end] for start, end in spans],
            is_pretokenized=True,
            add_special_tokens=False,
        )
        found: list[Word] = []
        before = None
        for row, word in zip(encoding.ids, encoding.word_ids, strict=True):
            assert word is not None  # only marks have none
            # Places inside a word are lost where a mark was replaced: all pieces of a
            # word stand where the word does.
            start, end = spans[word]
            found.append(Word(text[start:end], row, start, end, word == before))
            before = word
        return found
