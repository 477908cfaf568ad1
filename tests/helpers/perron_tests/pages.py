"""Parser for the code blocks in the documentation.

The ```python and ```bash blocks of a page are run in order. Commands that are indented
or in ```sh and ```console blocks are not run, but must exist and accept the given
options. A ```text block directly after a block that is run is its expected output, in
which … matches anything. `<!-- not run: reason -->` on the line before a block skips
it.
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
OPERATORS = ("|", "&&", ";", ">", "<", "&")
_SKIPPED = re.compile(r"<!-- not run: (.+) -->")
_FENCE = re.compile(r"( *)```(\w*).*")


class Block(NamedTuple):
    kind: str  # language of a fenced block, or "indented"
    line: int  # line number of the first line of code, from 1
    code: str
    skip_reason: str | None = None
    expected_output: str | None = None


def read_blocks(page: str) -> list[Block]:
    """Return the code blocks of a page in order."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    blocks: list[Block] = []
    index, before, last = 0, "", 0
    while index < len(lines):
        line = lines[index]
        start = index
        if fence := _FENCE.fullmatch(line):
            end = f"{fence[1]}```"
            index = lines.index(end, start + 1)
            code = [each.removeprefix(fence[1]) for each in lines[start + 1 : index]]
            block = Block(fence[2], start + 2, "\n".join(code))
        elif line.startswith("    ") and not lines[start - 1].strip():
            while index + 1 < len(lines) and re.match("    |$", lines[index + 1]):
                index += 1
            code = [each[4:] for each in lines[start : index + 1]]
            block = Block("indented", start + 1, "\n".join(code).rstrip())
        else:
            index, before = index + 1, line.strip() or before
            continue
        skipped = _SKIPPED.fullmatch(before)
        between = "".join(lines[last:start]).strip()
        if block.kind == "text" and blocks and blocks[-1].kind in RUN and not between:
            blocks[-1] = blocks[-1]._replace(expected_output=block.code)
        blocks.append(block._replace(skip_reason=skipped and skipped[1]))
        index, before = index + 1, ""
        last = index
    return blocks


def has_code(page: str) -> bool:
    """Return whether a page has code blocks that are run."""
    return any(
        block.kind in RUN and not block.skip_reason for block in read_blocks(page)
    )


def parse_commands(block: Block) -> list[list[str]]:
    """Return the commands of a shell block, each as a list of words."""
    commands = []
    for line in block.code.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line.removeprefix("$ "), comments=True)
        except ValueError:  # an unclosed quote, so not a command
            continue
        groups = itertools.groupby(words, lambda word: word in OPERATORS)
        commands += [list(part) for is_operator, part in groups if not is_operator]
    return commands
