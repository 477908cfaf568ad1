"""Word tokenizers, and subword tokenizers of pretrained models."""

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

_PRETOKENIZED_WORD = r"\S[^ \t\r\n]*"

# Penn Treebank escapes, typographic quotes and HTML line breaks, with replacements.
_REPLACEMENTS = [
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

# Escapes of several characters that are replaced by a single character.
_LONG_ESCAPE = re.compile(
    r"-[LR][RSC]B-|\\[/*]|['`\u00B4\u2018\u2019\u201B]{2}", re.IGNORECASE
)

# A word is the first alternative that matches. As in the Penn Treebank, "n't" and "'s"
# are words, "can't" is "ca n't", and each punctuation mark, "..." and "--" is a word.
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
        # A flag emoji. \X would scan all preceding regional indicators each time.
        "[\U0001f1e6-\U0001f1ff]{1,2}" r"\p{M}*",
        r"(?!\s)\X",  # a punctuation mark, or an emoji with its modifiers
    ]
)


class Token(NamedTuple):
    """A token and its span in the text.

    Attributes:
        text: Text of the token.
        id: Index in the vocabulary.
        start: Start of the span.
        end: End of the span, exclusive.
        is_continuation: Whether the token belongs to the same word as the previous one.
    """

    text: str
    id: int
    start: int
    end: int
    is_continuation: bool = False


class TextTokenizer(ABC):
    """Base class of tokenizers."""

    _raw: Tokenizer

    @property
    def words(self) -> list[str]:
        """Vocabulary, in the order of the ids."""
        ids = self._raw.get_vocab(with_added_tokens=False)
        return sorted(ids, key=ids.__getitem__)

    @abstractmethod
    def encode(
        self, texts: Sequence[str], pretokenized: bool = False
    ) -> list[list[int]]:
        """Return the token ids of each text.

        Args:
            texts: Texts to tokenize.
            pretokenized: Whether tokens are already separated by whitespace.
        """

    @abstractmethod
    def tokenize(self, text: str, pretokenized: bool = False) -> list[Token]:
        """Return the tokens of a text with their spans.

        Args:
            text: Text to tokenize.
            pretokenized: Whether tokens are already separated by whitespace.
        """

    def to_json(self) -> str:
        """Return the content of tokenizer.json."""
        return self._raw.to_str(pretty=True)


class WordTokenizer(TextTokenizer):
    """Tokenizer that splits texts into words; id 0 is the unknown word.

    Raw text is split as in the Penn Treebank. Pretokenized text is split at whitespace
    only. In both, Penn Treebank escapes such as ``-LRB-`` are replaced by the
    characters they stand for.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._raw = tokenizer
        self._pretokenized = Tokenizer.from_str(tokenizer.to_str())
        self._pretokenized.pre_tokenizer = whitespace_splitter()

    @classmethod
    def from_words(cls, words: Sequence[str], case: Case) -> "WordTokenizer":
        """Create a tokenizer for a vocabulary.

        Args:
            words: Vocabulary in the order of the ids. The first word must be `UNKNOWN`.
            case: Whether to lowercase texts.
        """
        if not words or words[0] != UNKNOWN:
            first = repr(words[0]) if words else "no words"
            raise ValueError(f"words must start with {UNKNOWN!r}, got {first}.")
        ids = {word: index for index, word in enumerate(words)}
        return cls(word_level_tokenizer(ids, case))

    def encode(
        self, texts: Sequence[str], pretokenized: bool = False
    ) -> list[list[int]]:
        """Return the ids of each text's words."""
        tokenizer = self._pretokenized if pretokenized else self._raw
        encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def tokenize(self, text: str, pretokenized: bool = False) -> list[Token]:
        """Return the words of a text, as written, with their spans."""
        tokenizer = self._pretokenized if pretokenized else self._raw
        encoding = tokenizer.encode(text, add_special_tokens=False)
        # The offsets from `tokenizers` only cover the last character of a long escape,
        # and exclude a combining accent that follows a letter.
        escapes = {
            match.end() - 1: match.start() for match in _LONG_ESCAPE.finditer(text)
        }
        starts = [escapes.get(start, start) for start, _ in encoding.offsets]
        limits = [*starts, len(text)][1:]
        tokens = []
        for token_id, start, (_, end), limit in zip(
            encoding.ids, starts, encoding.offsets, limits, strict=True
        ):
            while end < limit and not text[end].isspace() and text[end] != "<":
                end += 1
            tokens.append(Token(text[start:end], token_id, start, end))
        return tokens

    @classmethod
    def from_json(
        cls, content: bytes, path: str | Path = "tokenizer.json"
    ) -> "WordTokenizer":
        """Create a tokenizer from the content of a tokenizer.json.

        Args:
            content: Content of the file.
            path: Path of the file, for error messages.
        """
        tokenizer = parse_tokenizer(content, path)
        unknown_id = tokenizer.token_to_id(UNKNOWN)
        if unknown_id != 0:
            raise DataError(
                f"not a word tokenizer: id of {UNKNOWN} must be 0, got {unknown_id}.",
                path,
            )
        return cls(tokenizer)


def parse_tokenizer(content: bytes, path: str | Path) -> Tokenizer:
    """Parse the content of a tokenizer.json of any kind."""
    try:
        return Tokenizer.from_str(content.decode())
    except Exception as error:  # `tokenizers` raises no more specific type
        raise DataError(f"not a valid tokenizer file: {error}", path) from error


def treebank_normalizers() -> list[normalizers.Normalizer]:
    """Return normalizers that replace Penn Treebank escapes such as ``-LRB-``."""
    return [normalizers.Replace(escape, plain) for escape, plain in _REPLACEMENTS]


def whitespace_splitter() -> pre_tokenizers.PreTokenizer:
    """Return a pre-tokenizer for pretokenized text.

    A no-break space is part of a word, as in "8 1/2" in SST.
    """
    return pre_tokenizers.Split(
        Regex(_PRETOKENIZED_WORD), behavior="removed", invert=True
    )


def word_level_tokenizer(vocabulary: dict[str, int], case: Case) -> Tokenizer:
    """Return a tokenizer for raw text with the given vocabulary."""
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    steps += treebank_normalizers()
    if case == "lower":
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(_WORD), behavior="removed", invert=True
    )
    return tokenizer


_PRETOKENIZED_PATTERN = re.compile(_PRETOKENIZED_WORD)


class SpecialTokens(NamedTuple):
    """Ids of the special tokens around a text, such as ``[CLS]`` and ``[SEP]``."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class SubwordTokenizer(TextTokenizer):
    """Tokenizer of a pretrained model, which also tracks which subwords form a word.

    By default, the ids do not include special tokens, which the encoder adds.
    Pretokenized text is split into words at whitespace only, and Penn Treebank escapes
    such as ``-LRB-`` are replaced by the characters they stand for, because the model
    did not see them in pretraining.

    Attributes:
        kept_special_tokens: Special tokens that are included in the ids of each text.
    """

    def __init__(self, tokenizer: Tokenizer, keep_special_tokens: bool = False) -> None:
        """Create a tokenizer.

        Args:
            tokenizer: Tokenizer of the model. It is not modified.
            keep_special_tokens: Whether to include the special tokens in the ids of
                each text.
        """
        # A copy without truncation and padding, which may be enabled in the original.
        self._raw = Tokenizer.from_str(tokenizer.to_str())
        self._raw.no_truncation()
        self._raw.no_padding()
        self._pretokenized = Tokenizer.from_str(self._raw.to_str())
        normalizer = self._pretokenized.normalizer
        steps = [*treebank_normalizers(), *([] if normalizer is None else [normalizer])]
        self._pretokenized.normalizer = normalizers.Sequence(steps)
        self.kept_special_tokens = (
            self.special_tokens if keep_special_tokens else SpecialTokens((), ())
        )

    @classmethod
    def from_json(
        cls,
        content: bytes,
        path: str | Path = "tokenizer.json",
        keep_special_tokens: bool = False,
    ) -> "SubwordTokenizer":
        """Create a tokenizer from the content of a tokenizer.json.

        Args:
            content: Content of the file.
            path: Path of the file, for error messages.
            keep_special_tokens: Whether to include the special tokens in the ids of
                each text. The file does not contain this setting.
        """
        return cls(parse_tokenizer(content, path), keep_special_tokens)

    @property
    def words(self) -> list[str]:
        """Vocabulary with special tokens, in the order of the ids."""
        ids = self._raw.get_vocab(with_added_tokens=True)
        return sorted(ids, key=ids.__getitem__)

    @property
    def special_tokens(self) -> SpecialTokens:
        """Special tokens that the model expects around each text."""
        plain = self._raw.encode("a", add_special_tokens=False).ids
        ids = self._raw.encode("a", add_special_tokens=True).ids
        start = next(
            index
            for index in range(len(ids))
            if ids[index : index + len(plain)] == plain
        )
        return SpecialTokens(tuple(ids[:start]), tuple(ids[start + len(plain) :]))

    def encode(
        self, texts: Sequence[str], pretokenized: bool = False
    ) -> list[list[int]]:
        """Return the ids of each text's subwords and kept special tokens."""
        if pretokenized:
            split = [_PRETOKENIZED_PATTERN.findall(text) for text in texts]
            encoded = self._pretokenized.encode_batch_fast(
                split, is_pretokenized=True, add_special_tokens=False
            )
        else:
            encoded = self._raw.encode_batch_fast(list(texts), add_special_tokens=False)
        before, after = self.kept_special_tokens
        return [[*before, *encoding.ids, *after] for encoding in encoded]

    def tokenize(self, text: str, pretokenized: bool = False) -> list[Token]:
        """Return the subwords of a text with their spans.

        Special tokens have an empty span at the start or end of the text.
        """
        split = self._tokenize_pretokenized if pretokenized else self._tokenize_raw
        tokens = split(text)
        start, end = (tokens[0].start, tokens[-1].end) if tokens else (0, 0)
        before, after = self.kept_special_tokens
        return [
            *(self._special_token(token_id, start) for token_id in before),
            *tokens,
            *(self._special_token(token_id, end) for token_id in after),
        ]

    def _special_token(self, token_id: int, position: int) -> Token:
        text = self._raw.id_to_token(token_id) or ""
        return Token(text, token_id, position, position)

    def _tokenize_raw(self, text: str) -> list[Token]:
        encoding = self._raw.encode(text, add_special_tokens=False)
        tokens: list[Token] = []
        previous = None
        for token_id, (start, end), word in zip(
            encoding.ids, encoding.offsets, encoding.word_ids, strict=True
        ):
            # Some tokenizers include the preceding space in the offsets.
            while start < end and text[start].isspace():
                start += 1
            is_continuation = word is not None and word == previous
            tokens.append(Token(text[start:end], token_id, start, end, is_continuation))
            previous = word
        return tokens

    def _tokenize_pretokenized(self, text: str) -> list[Token]:
        spans = [match.span() for match in _PRETOKENIZED_PATTERN.finditer(text)]
        encoding = self._pretokenized.encode(
            [text[start:end] for start, end in spans],
            is_pretokenized=True,
            add_special_tokens=False,
        )
        tokens: list[Token] = []
        previous = None
        for token_id, word in zip(encoding.ids, encoding.word_ids, strict=True):
            assert word is not None  # it is None only for special tokens
            # Offsets within a word are wrong if an escape was replaced, so each subword
            # gets the span of the word.
            start, end = spans[word]
            tokens.append(
                Token(text[start:end], token_id, start, end, word == previous)
            )
            previous = word
        return tokens
