"""Encoding of texts, pairs and documents as token ids, with sentence splitting."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from perron.errors import SettingsError
from perron.registry import check_setting_names
from perron.text.cache import cache_key, cached_dataset
from perron.text.tokenizers import (
    Case,
    SpecialTokens,
    SubwordTokenizer,
    TextTokenizer,
    Token,
)

if TYPE_CHECKING:
    from datasets import Dataset

Span = tuple[int, int]

# Line breaks, including those of HTML, always start a new sentence.
_LINE_BREAK = re.compile(r"<br\s*/?>|[\r\n]", re.IGNORECASE)

# spaCy's tokenizer takes quadratic time in the length of a run without whitespace,
# because it strips one punctuation mark at a time. Longer runs are split.
_MAX_RUN = 100
_LONG_RUN = re.compile(rf"\S{{{_MAX_RUN + 1},}}")


def split_sentences(
    texts: Sequence[str], separator: str | None = None
) -> list[list[Span]]:
    """Return the spans of the sentences of each document.

    Spans are stripped of whitespace, and empty sentences are omitted.

    Args:
        texts: Documents to split.
        separator: String that separates sentences. Defaults to spaCy's rule-based
            sentencizer, applied to each line.
    """
    if separator is not None:
        pattern = re.compile(re.escape(separator))
        return [_split(text, pattern) for text in texts]
    spans: list[list[Span]] = [[] for _ in texts]
    lines = [
        (text[start:end], (row, start))
        for row, text in enumerate(texts)
        for start, end in _split(text, _LINE_BREAK)
    ]
    for line, (row, offset) in _sentencizer().pipe(lines, as_tuples=True):
        for sentence in line.sents:
            start, end = offset + sentence.start_char, offset + sentence.end_char
            spans[row] += _strip(texts[row], start, end)
    return spans


def _split(text: str, pattern: re.Pattern[str]) -> list[Span]:
    """Return the stripped, nonempty spans between the matches."""
    bounds = [0]
    for match in pattern.finditer(text):
        bounds += [match.start(), match.end()]
    bounds.append(len(text))
    between = list(pairwise(bounds))[::2]
    return [span for start, end in between for span in _strip(text, start, end)]


def _strip(text: str, start: int, end: int) -> Sequence[Span]:
    """Return the span without surrounding whitespace, or nothing if it is empty."""
    content = text[start:end]
    start += len(content) - len(content.lstrip())
    end -= len(content) - len(content.rstrip())
    return [(start, end)] if start < end else []


@cache
def _sentencizer() -> Any:
    try:
        import spacy  # slow to import, and only documents need it
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"splitting documents into sentences requires {error.name}. Install it "
            "with: pip install 'perron[documents]'"
        ) from error

    language = spacy.blank("en")
    language.add_pipe("sentencizer")
    language.max_length = 10**9  # the default protects parsers, which need more memory
    tokenizer = language.tokenizer

    def tokenize(text: str) -> Any:
        docs = [tokenizer(chunk) for chunk in _split_long_runs(text)]
        if len(docs) == 1:
            return docs[0]
        tokens = [token for doc in docs for token in doc]
        words = [token.text for token in tokens]
        spaces = [bool(token.whitespace_) for token in tokens]
        return spacy.tokens.Doc(language.vocab, words, spaces)

    language.tokenizer = tokenize
    return language


def _split_long_runs(text: str) -> list[str]:
    """Split each run of non-whitespace that is too long into chunks of equal size."""
    bounds = [0]
    for run in _LONG_RUN.finditer(text):
        size = run.end() - run.start()
        count = -(-size // _MAX_RUN)
        bounds += [run.start() + size * index // count for index in range(1, count)]
    bounds.append(len(text))
    return [text[start:end] for start, end in pairwise(bounds)]


Kind = Literal["text", "document", "pair"]
_Item = TypeVar("_Item", int, Token)

_COLUMNS: dict[Kind, tuple[str, ...]] = {
    "text": ("ids",),
    "document": ("ids", "lengths"),
    "pair": ("ids", "pair_ids"),
}
_BATCH = 1000


class TextSettings(BaseModel):
    """Settings of the tokenizer and the vocabulary."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    _check_names = model_validator(mode="before")(check_setting_names)

    case: Case = Field(
        "lower",
        description="Whether to convert texts to lowercase (lower) or leave them as "
        "they are (keep).",
    )
    min_count: int = Field(
        1, ge=1, description="Minimum count of a word; rarer words are unknown."
    )
    vector_words: int = Field(
        0,
        ge=0,
        description="Number of frequent words to add from the start of the word "
        "vectors, even if no training text contains them.",
    )
    max_words: int = Field(
        50,
        ge=1,
        description="Maximum number of words per text, or per sentence of a document.",
    )
    max_sentences: int = Field(
        40, ge=1, description="Maximum number of sentences per document."
    )


class TokenSequence(NamedTuple):
    """The tokens of one text or sentence.

    Attributes:
        tokens: Tokens that the model sees: words or, for subword tokenizers, subwords.
        truncated: Whether the text has more tokens.
    """

    tokens: list[Token]
    truncated: bool


class TokenizedText(NamedTuple):
    """A tokenized text, pair or document.

    Attributes:
        sequences: Tokens of the text, of both texts of a pair, or of each sentence of a
            document.
        truncated: Whether the document has more sentences.
    """

    sequences: list[TokenSequence]
    truncated: bool = False


@dataclass(frozen=True)
class TextProcessor:
    """Encodes texts, pairs or documents as token ids, truncated to the model's limits.

    Attributes:
        tokenizer: Tokenizer of the model.
        kind: Kind of input of the model.
        max_words: Maximum number of tokens per text, or per sentence of a document.
        max_sentences: Maximum number of sentences per document.
        pretokenized: Whether texts are already tokenized, with tokens separated by
            whitespace.
        sentence_separator: String that separates sentences. Defaults to rule-based
            sentence splitting.
    """

    tokenizer: TextTokenizer
    kind: Kind
    max_words: int
    max_sentences: int
    pretokenized: bool = False
    sentence_separator: str | None = None

    def for_input(
        self, pretokenized: bool, sentence_separator: str | None
    ) -> "TextProcessor":
        """Return a copy for texts with another tokenization or sentence separator."""
        return replace(
            self, pretokenized=pretokenized, sentence_separator=sentence_separator
        )

    def encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> list[dict[str, list[int]]]:
        """Return the token ids of each text, in the columns that `Examples` reads."""
        if self.kind == "document":
            return self._encode_documents(texts)
        rows = [{"ids": ids} for ids in self._encode_texts(texts)]
        if self.kind == "pair":
            assert pairs is not None
            for row, ids in zip(rows, self._encode_texts(pairs), strict=True):
                row["pair_ids"] = ids
        return rows

    def tokenize(self, text: str, pair: str | None = None) -> TokenizedText:
        """Return the tokens that the model sees, with their spans in the text."""
        if self.kind != "document":
            texts = [text] if pair is None else [text, pair]
            return TokenizedText([self._tokenize(part, 0) for part in texts])
        (spans,) = split_sentences([text], self.sentence_separator)
        sentences = [
            self._tokenize(text[start:end], start)
            for start, end in spans[: self.max_sentences]
        ]
        sequences = [part for part in sentences if self._has_content(part.tokens)]
        return TokenizedText(sequences, len(spans) > self.max_sentences)

    def _tokenize(self, text: str, offset: int) -> TokenSequence:
        tokens = self.tokenizer.tokenize(text, self.pretokenized)
        shifted = [
            token._replace(start=token.start + offset, end=token.end + offset)
            for token in self._truncate(tokens)
        ]
        return TokenSequence(shifted, len(tokens) > self.max_words)

    def _encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer.encode(texts, self.pretokenized)
        return [self._truncate(ids) for ids in encoded]

    def _truncate(self, items: list[_Item]) -> list[_Item]:
        """Truncate to `max_words`, keeping trailing special tokens."""
        if len(items) <= self.max_words:
            return items
        count = min(len(self._special_tokens.after), self.max_words - 1)
        return items[: self.max_words - count] + items[len(items) - count :]

    def _has_content(self, items: list[_Item]) -> bool:
        """Return whether the text has any tokens besides special tokens."""
        before, after = self._special_tokens
        return len(items) > len(before + after)

    @cached_property
    def _special_tokens(self) -> SpecialTokens:
        """Special tokens that the tokenizer adds to each text."""
        if isinstance(self.tokenizer, SubwordTokenizer):
            return self.tokenizer.kept_special_tokens
        return SpecialTokens((), ())

    def _encode_documents(self, texts: Sequence[str]) -> list[dict[str, list[int]]]:
        spans = [
            document[: self.max_sentences]
            for document in split_sentences(texts, self.sentence_separator)
        ]
        sentences = [
            text[start:end]
            for text, document in zip(texts, spans, strict=True)
            for start, end in document
        ]
        encoded = iter(self._encode_texts(sentences))
        rows = []
        for document in spans:
            sequences = [next(encoded) for _ in document]
            sequences = [ids for ids in sequences if self._has_content(ids)]
            rows.append(
                {
                    "ids": [token_id for ids in sequences for token_id in ids],
                    "lengths": [len(ids) for ids in sequences],
                }
            )
        return rows

    def encode_dataset(self, dataset: "Dataset") -> "Dataset":
        """Return the token ids and labels of a dataset of texts, cached on disk."""
        import pyarrow as pa

        ids = dict.fromkeys(_COLUMNS[self.kind], pa.list_(pa.int32()))
        schema = pa.schema({**ids, "label": pa.int64(), "line": pa.int32()})
        key_values = {
            "dataset": dataset._fingerprint,
            "tokenizer": self.tokenizer.to_json(),
            "special_tokens": self._special_tokens,
            "kind": self.kind,
            "max_words": self.max_words,
            "max_sentences": self.max_sentences,
            "pretokenized": self.pretokenized,
            "sentence_separator": self.sentence_separator,
        }
        rows = self._encode_rows(dataset)
        return cached_dataset(rows, schema, cache_key(key_values))

    def _encode_rows(self, dataset: "Dataset") -> Iterator[dict[str, Any]]:
        for batch in dataset.iter(_BATCH):
            rows = self.encode(batch["text"], batch.get("pair"))
            for row, label, line in zip(
                rows, batch["label"], batch["line"], strict=True
            ):
                yield {**row, "label": label, "line": line}
