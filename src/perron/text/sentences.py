"""Sentences of documents, with spaCy or at a mark."""

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from perron.errors import SettingsError

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
