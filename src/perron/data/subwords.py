"""Text to subwords with their ids and places, as a pretrained model splits it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer, normalizers

from perron.data.words import (
    AT_BLANKS,
    TextTokenizer,
    Word,
    plain_marks,
    read_tokenizer,
)

_TOKENISED_WORD = re.compile(AT_BLANKS)


class Marks(NamedTuple):
    """Ids that a model wants around each text, such as ``[CLS]`` and ``[SEP]``."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class SubwordTokenizer(TextTokenizer):
    """Splits texts as a pretrained model wants it, and knows which pieces are a word.

    Ids are those of the text alone: the marks around it are the encoder's business. In
    tokenised text every word is what stands between blanks, and marks of treebanks
    such as ``-LRB-`` become what they stand for, as pretraining never saw them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        # A copy, with no cut and no padding: a model's own settings may have both.
        self._raw = Tokenizer.from_str(tokenizer.to_str())
        self._raw.no_truncation()
        self._raw.no_padding()
        self._tokenised = Tokenizer.from_str(self._raw.to_str())
        own = self._tokenised.normalizer
        steps = [*plain_marks(), *([] if own is None else [own])]
        self._tokenised.normalizer = normalizers.Sequence(steps)

    @classmethod
    def load(cls, path: Path) -> "SubwordTokenizer":
        """Read a tokenizer.json."""
        return cls(read_tokenizer(path))

    @property
    def words(self) -> list[str]:
        """The vocabulary, in the order of the ids, with the marks."""
        rows = self._raw.get_vocab(with_added_tokens=True)
        return sorted(rows, key=rows.__getitem__)

    @property
    def marks(self) -> Marks:
        """What the model wants around each text."""
        plain = self._raw.encode("a", add_special_tokens=False).ids
        marked = self._raw.encode("a", add_special_tokens=True).ids
        begin = next(
            place
            for place in range(len(marked))
            if marked[place : place + len(plain)] == plain
        )
        return Marks(tuple(marked[:begin]), tuple(marked[begin + len(plain) :]))

    def encode(self, texts: Sequence[str], tokenised: bool = False) -> list[list[int]]:
        """Return the ids of each text's subwords."""
        if tokenised:
            split = [_TOKENISED_WORD.findall(text) for text in texts]
            encoded = self._tokenised.encode_batch_fast(
                split, is_pretokenized=True, add_special_tokens=False
            )
        else:
            encoded = self._raw.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def find_words(self, text: str, tokenised: bool = False) -> list[Word]:
        """Return the subwords of a text; those of one word follow one another."""
        if tokenised:
            return self._find_tokenised(text)
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

    def _find_tokenised(self, text: str) -> list[Word]:
        spans = [match.span() for match in _TOKENISED_WORD.finditer(text)]
        encoding = self._tokenised.encode(
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
