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

    Unless ``marked``, ids are those of the text alone, and the marks around it are the
    encoder's business. In tokenised text every word is what stands between blanks, and
    marks of treebanks such as ``-LRB-`` become what they stand for, as pretraining
    never saw them.

    Attributes:
        around: the marks that are among the ids of each text, as words of it.
    """

    def __init__(self, tokenizer: Tokenizer, marked: bool = False) -> None:
        """Take over a tokenizer.

        Args:
            tokenizer: of the model; it is left as it is.
            marked: give the marks around each text as words of it.
        """
        # A copy, with no cut and no padding: a model's own settings may have both.
        self._raw = Tokenizer.from_str(tokenizer.to_str())
        self._raw.no_truncation()
        self._raw.no_padding()
        self._tokenised = Tokenizer.from_str(self._raw.to_str())
        own = self._tokenised.normalizer
        steps = [*plain_marks(), *([] if own is None else [own])]
        self._tokenised.normalizer = normalizers.Sequence(steps)
        self.around = self.marks if marked else Marks((), ())

    @classmethod
    def load(cls, path: Path, marked: bool = False) -> "SubwordTokenizer":
        """Read a tokenizer.json; it does not say whether texts are marked."""
        return cls(read_tokenizer(path), marked)

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
        """Return the ids of each text's subwords, with the marks around them."""
        if tokenised:
            split = [_TOKENISED_WORD.findall(text) for text in texts]
            encoded = self._tokenised.encode_batch_fast(
                split, is_pretokenized=True, add_special_tokens=False
            )
        else:
            encoded = self._raw.encode_batch_fast(list(texts), add_special_tokens=False)
        before, after = self.around
        return [[*before, *encoding.ids, *after] for encoding in encoded]

    def find_words(self, text: str, tokenised: bool = False) -> list[Word]:
        """Return the subwords of a text; those of one word follow one another.

        A mark stands where the text begins or ends, and takes up no room there.
        """
        found = self._find_tokenised(text) if tokenised else self._find_raw(text)
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
