"""Texts, pairs and documents as ids of words; documents are split into sentences."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

import pyarrow as pa
from datasets import Dataset
from pydantic import BaseModel, ConfigDict, Field

from perron.errors import SettingsError
from perron.text.cache import key_of, stored
from perron.text.tokenizers import (
    Case,
    SpecialTokens,
    SubwordTokenizer,
    TextTokenizer,
    Word,
)

Span = tuple[int, int]

# Where a new sentence begins in any case: line breaks, those of web pages too.
_BREAK = re.compile(r"<br\s*/?>|[\r\n]", re.IGNORECASE)

# spaCy takes one mark after the other from the ends of what has no blanks, and looks
# at all of the rest each time.
_LONGEST = 100
_RUN = re.compile(rf"\S{{{_LONGEST + 1},}}")


def split_sentences(texts: Sequence[str], mark: str | None = None) -> list[list[Span]]:
    """Return for each document the spans of its sentences, none of them blank.

    By the mark, where the format has one; else by spaCy's rule-based sentencizer, line
    by line.
    """
    if mark is not None:
        pattern = re.compile(re.escape(mark))
        return [_parted(text, pattern) for text in texts]
    spans: list[list[Span]] = [[] for _ in texts]
    lines = [
        (text[start:end], (row, start))
        for row, text in enumerate(texts)
        for start, end in _parted(text, _BREAK)
    ]
    for line, (row, start) in _sentencizer().pipe(lines, as_tuples=True):
        for sentence in line.sents:
            begin, end = start + sentence.start_char, start + sentence.end_char
            spans[row] += _stripped(texts[row], begin, end)
    return spans


def _parted(text: str, pattern: re.Pattern[str]) -> list[Span]:
    """Return what stands between the matches, but for what is blank."""
    cuts = [0]
    for match in pattern.finditer(text):
        cuts += [match.start(), match.end()]
    cuts.append(len(text))
    inner = list(pairwise(cuts))[::2]
    return [span for start, end in inner for span in _stripped(text, start, end)]


def _stripped(text: str, start: int, end: int) -> Sequence[Span]:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    end -= len(piece) - len(piece.rstrip())
    return [(start, end)] if start < end else []


@cache
def _sentencizer() -> Any:
    try:
        import spacy  # here, because it takes seconds and only documents need it
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"documents need {error.name} to find their sentences: "
            "pip install 'perron[documents]'"
        ) from error

    language = spacy.blank("en")
    language.add_pipe("sentencizer")
    language.max_length = 10**9  # the limit is for parsers, which take more memory
    tokenizer = language.tokenizer

    def by_pieces(text: str) -> Any:
        pieces = [tokenizer(piece) for piece in _pieces(text)]
        if len(pieces) == 1:
            return pieces[0]
        tokens = [token for piece in pieces for token in piece]
        words = [token.text for token in tokens]
        blanks = [bool(token.whitespace_) for token in tokens]
        return spacy.tokens.Doc(language.vocab, words, blanks)

    language.tokenizer = by_pieces
    return language


def _pieces(text: str) -> list[str]:
    """Cut what is longer than any word, and has no blanks, into even pieces."""
    cuts = [0]
    for run in _RUN.finditer(text):
        size = run.end() - run.start()
        count = -(-size // _LONGEST)
        cuts += [run.start() + size * place // count for place in range(1, count)]
    cuts.append(len(text))
    return [text[start:end] for start, end in pairwise(cuts)]


Kind = Literal["text", "document", "pair"]
_Piece = TypeVar("_Piece", int, Word)

_IDS = pa.list_(pa.int32())
_COLUMNS: dict[Kind, dict[str, pa.DataType]] = {
    "text": {"ids": _IDS},
    "document": {"ids": _IDS, "lengths": _IDS},
    "pair": {"ids": _IDS, "pair_ids": _IDS},
}
_BATCH = 1000


class TextSettings(BaseModel):
    """How texts become words, and words a vocabulary."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    case: Case = Field("lower", description="lower: Film and film are one word")
    min_count: int = Field(1, ge=1, description="rarer words are unknown words")
    vector_words: int = Field(
        0,
        ge=0,
        description="this many of the first words of the word vectors, which are the "
        "most frequent, join the vocabulary though no training text has them",
    )
    max_words: int = Field(
        50, ge=1, description="a text, or a sentence of a document, is cut here"
    )
    max_sentences: int = Field(40, ge=1, description="a document is cut here")


class FoundWords(NamedTuple):
    """What a model reads one after the other; ``cut`` if more would follow.

    The words, or, where a tokenizer has smaller pieces, the pieces of words.
    """

    words: list[Word]
    truncated: bool


class Found(NamedTuple):
    """The words of a text, of both texts of a pair, or of a document's sentences.

    ``cut`` if the document has more sentences than the model reads.
    """

    parts: list[FoundWords]
    truncated: bool = False


@dataclass(frozen=True)
class TextProcessor:
    """Turns texts, pairs or documents into ids, cut to the length that the model has.

    Attributes:
        tokenizer: of the model.
        kind: of the model.
        max_words: of a text, or of a sentence of a document.
        max_sentences: of a document.
        pretokenized: words are parted by blanks already.
        sentence_separator: stands between sentences; without one they are found by rules.
    """

    tokenizer: TextTokenizer
    kind: Kind
    max_words: int
    max_sentences: int
    pretokenized: bool = False
    sentence_separator: str | None = None

    def reading(
        self, pretokenized: bool, sentence_separator: str | None
    ) -> "TextProcessor":
        """Return the same for texts that come in another form."""
        return replace(
            self, pretokenized=pretokenized, sentence_separator=sentence_separator
        )

    def rows(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> list[dict[str, list[int]]]:
        """Return the ids of each text, in the columns that `Examples` reads."""
        if self.kind == "document":
            return self._documents(texts)
        rows = [{"ids": ids} for ids in self._sequences(texts)]
        if self.kind == "pair":
            assert pairs is not None
            for row, ids in zip(rows, self._sequences(pairs), strict=True):
                row["pair_ids"] = ids
        return rows

    def find_words(self, text: str, pair: str | None = None) -> Found:
        """Return the words that the model sees, with their places in the text."""
        if self.kind != "document":
            texts = [text] if pair is None else [text, pair]
            return Found([self._located(part, 0) for part in texts])
        (spans,) = split_sentences([text], self.sentence_separator)
        sentences = [
            self._located(text[start:end], start)
            for start, end in spans[: self.max_sentences]
        ]
        seen = [sentence for sentence in sentences if self._has_words(sentence.words)]
        return Found(seen, len(spans) > self.max_sentences)

    def _located(self, text: str, offset: int) -> FoundWords:
        found = self.tokenizer.find_words(text, self.pretokenized)
        words = [
            word._replace(start=word.start + offset, end=word.end + offset)
            for word in self._cut(found)
        ]
        return FoundWords(words, len(found) > self.max_words)

    def _sequences(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer.encode(texts, self.pretokenized)
        return [self._cut(ids) for ids in encoded]

    def _cut(self, found: list[_Piece]) -> list[_Piece]:
        """Leave out what is too long, but keep the marks behind the text, if any."""
        if len(found) <= self.max_words:
            return found
        marks = min(len(self._around.after), self.max_words - 1)
        return found[: self.max_words - marks] + found[len(found) - marks :]

    def _has_words(self, found: list[_Piece]) -> bool:
        return len(found) > len(self._around.before + self._around.after)

    @cached_property
    def _around(self) -> SpecialTokens:
        """The marks that the tokenizer gives with each text."""
        if isinstance(self.tokenizer, SubwordTokenizer):
            return self.tokenizer.around
        return SpecialTokens((), ())

    def _documents(self, texts: Sequence[str]) -> list[dict[str, list[int]]]:
        spans = split_sentences(texts, self.sentence_separator)
        sentences = [
            text[start:end]
            for text, inside in zip(texts, spans, strict=True)
            for start, end in inside[: self.max_sentences]
        ]
        encoded = iter(self._sequences(sentences))
        rows = []
        for inside in spans:
            kept = [next(encoded) for _ in inside[: self.max_sentences]]
            kept = [ids for ids in kept if self._has_words(ids)]
            rows.append(
                {
                    "ids": [row for ids in kept for row in ids],
                    "lengths": [len(ids) for ids in kept],
                }
            )
        return rows

    def encode_dataset(self, dataset: Dataset) -> Dataset:
        """Return the ids and labels of a dataset of texts, kept on disk like it."""
        schema = pa.schema(
            {**_COLUMNS[self.kind], "label": pa.int64(), "line": pa.int32()}
        )
        facts = {
            "of": dataset._fingerprint,
            "tokenizer": self.tokenizer.to_json(),
            "around": self._around,
            "kind": self.kind,
            "max_words": self.max_words,
            "max_sentences": self.max_sentences,
            "pretokenized": self.pretokenized,
            "sentence_separator": self.sentence_separator,
        }
        return stored(self._encoded(dataset), schema, key_of(facts))

    def _encoded(self, dataset: Dataset) -> Iterator[dict[str, Any]]:
        for batch in dataset.iter(_BATCH):
            rows = self.rows(batch["text"], batch.get("pair"))
            for row, label, line in zip(
                rows, batch["label"], batch["line"], strict=True
            ):
                yield {**row, "label": label, "line": line}
