"""The code on the pages of the documentation.

Blocks in ```python and ```bash are run, page by page, in the order of the page.
Commands that are only shown, indented or in ```sh and ```console, are checked: they
must exist and take the options that are given. A ```text block right behind a block
that is run is what that prints; … stands for anything. `<!-- not run: why -->` on the
line before excuses a block.
"""

import itertools
import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PAGES = [
    "README.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
]
RUN = ("python", "bash")
SHOWN = ("indented", "sh", "console", "shell")
BETWEEN = ("|", "&&", ";", ">", "<", "&")
_EXCUSE = re.compile(r"<!-- not run: (.+) -->")
_FENCE = re.compile(r"( *)```(\w*).*")


class Block(NamedTuple):
    kind: str  # the language of a fence, or "indented"
    line: int  # of its first line of code, from 1
    code: str
    excuse: str | None = None
    printed: str | None = None  # what it is said to print


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    blocks: list[Block] = []
    place, before, last = 0, "", 0
    while place < len(lines):
        line = lines[place]
        start = place
        if fence := _FENCE.fullmatch(line):
            end = f"{fence[1]}```"
            place = lines.index(end, start + 1)
            inside = [each.removeprefix(fence[1]) for each in lines[start + 1 : place]]
            found = Block(fence[2], start + 2, "\n".join(inside))
        elif line.startswith("    ") and not lines[start - 1].strip():
            while place + 1 < len(lines) and re.match("    |$", lines[place + 1]):
                place += 1
            inside = [each[4:] for each in lines[start : place + 1]]
            found = Block("indented", start + 1, "\n".join(inside).rstrip())
        else:
            place, before = place + 1, line.strip() or before
            continue
        excuse = _EXCUSE.fullmatch(before)
        between = "".join(lines[last:start]).strip()
        if found.kind == "text" and blocks and blocks[-1].kind in RUN and not between:
            blocks[-1] = blocks[-1]._replace(printed=found.code)
        blocks.append(found._replace(excuse=excuse and excuse[1]))
        place, before = place + 1, ""
        last = place
    return blocks


def has_code(page: str) -> bool:
    """Return if there is anything to run on a page."""
    return any(block.kind in RUN and not block.excuse for block in blocks_of(page))


def commands_of(block: Block) -> list[list[str]]:
    """Return the commands of a block of shell, each as a list of words."""
    found = []
    for line in block.code.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line.removeprefix("$ "), comments=True)
        except ValueError:  # a quote that does not end: no command
            continue
        for bar, part in itertools.groupby(words, lambda word: word in BETWEEN):
            if not bar:
                found.append(list(part))
    return found
