"""Stanford Sentiment Treebank: one PTB tree a line, a label 0-4 on every node."""

import re
from collections.abc import Iterator
from pathlib import Path

from perron.data.readers.rows import BadRow, BadRows, Row, numbered_lines

SST_FINE = ("very negative", "negative", "neutral", "positive", "very positive")
SST_BINARY = ("negative", "positive")
_BINARY_NAMES = ("negative", "negative", None, "positive", "positive")

# Only blanks part words: a no-break space occurs inside one.
_TOKEN = re.compile(r"[()]|[^() \t]+")


def read_sst(
    path: Path, bad: BadRows, binary: bool = False, phrases: bool = False
) -> Iterator[Row]:
    """Yield each sentence, or with ``phrases`` each distinct phrase of each tree.

    With ``binary`` what is neutral is left out, and so are neutral phrases of other
    sentences. Escapes such as -LRB- stay as they are.
    """
    names = _BINARY_NAMES if binary else SST_FINE
    for number, line in numbered_lines(path, bad):
        if not line.strip():
            continue
        try:
            words, nodes = parse_tree(line)
        except BadRow as error:
            bad.report(path, number, f"broken tree: {error}")
            continue
        if not phrases:
            nodes = nodes[-1:]
        rows = [
            Row(number, " ".join(words[start:end]), names[grade])
            for start, end, grade in reversed(nodes)  # the sentence first
            if names[grade] is not None
        ]
        yield from dict.fromkeys(rows)


def parse_tree(line: str) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Return the words and, for every node, (first word, last word + 1, grade).

    Children come before their parents, so the sentence is the last node. Done with a
    list of open brackets: trees may be deeper than Python's recursion.
    """
    words: list[str] = []
    nodes: list[tuple[int, int, int]] = []
    opened: list[tuple[int, int]] = []  # (first word, grade)
    tokens = iter(_TOKEN.findall(line))
    for token in tokens:
        if nodes and not opened:
            raise BadRow("something follows its last bracket")
        if token == "(":
            grade = next(tokens, "")
            if grade not in ("0", "1", "2", "3", "4"):
                raise BadRow(f"the label must be 0-4, not {grade!r}")
            opened.append((len(words), int(grade)))
        elif not opened:
            raise BadRow("it does not begin with a bracket")
        elif token == ")":
            start, value = opened.pop()
            if start == len(words):
                raise BadRow("brackets without a word")
            nodes.append((start, len(words), value))
        else:
            words.append(token)
    if opened:
        raise BadRow(f"{len(opened)} brackets are not closed")
    return words, nodes
