"""The project's text reads like the documentation of torch and scikit-learn.

Each rule below is a phrase that has a more common equivalent. The rules apply to
comments, docstrings, messages, documentation pages, notebooks and identifiers.
"""

import ast
import io
import json
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SUFFIXES = {".py", ".md", ".js", ".html", ".css", ".toml", ".yml", ".ipynb"}
EXCLUDED = (
    "tests/earlier_formats/",  # frozen files of earlier versions
    "tests/test_prose.py",  # contains the phrases
    "papers/gong2019/results/",  # records of runs, and pages rendered from them
)

PHRASES = {
    r"\bcame as\b": "got",
    r"(?<!there )\bis no (?!longer|better|worse|more|less|larger|smaller)": (
        "is not a"
    ),
    r"\bthere is no such\b": "does not exist, or was not found",
    r"\bparted\b": "split, separated",
    r"\bblanks\b|\bblank\b(?! line|\()": "whitespace, space",
    r"\btold\b|\btells\b": "report, show, message",
    r"\b(go|goes|went|going) on\b": "resume, continue",
    r"\banew\b": "again",
    r"\blearnt\b": "learned",
    r"\bcommonest\b": "most frequent",
    r"\bper cent\b": "%",
    r"\blikewise\b": "the same, also",
    r"\blest\b": "so that ... not",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\b(unless|if not) given\b": "Defaults to",
    r"\b[Ww]ho has\b|\b[Ww]hoever\b|\b[Tt]hose who\b": "If you have",
    r"\bbut for\b": "except",
    r"\bso many\b": "N, this many",
    r"\bat the (most|least)\b": "at most, at least",
    r"\bone after the other\b": "in sequence, one at a time",
    r"\ba (text|line|word|row|number|file|request|column|sentence) an? "
    r"(text|line|word|row|file|request|column|sentence|second)\b": "one text per line",
    r"\b(texts|rows|words|documents|requests|sentences) a second\b": "per second",
    r"\bof like (length|size)\b": "of similar",
    r"\bto be had\b": "available",
    r"\blaid out anew\b": "laid out again",
    r"\b[Pp]oolings\b": "pooling methods, aggregators",
    r"\b(is an error|are errors) that\b": "raises an error that",
    r"\bmodels? for pairs\b": "pair model",
    r"\balso (if|when)\b": "even if",
    r"\b[Dd]efaults to that of\b": "the noun, such as the seed in the recipe",
    r"(?i)\b(data|metadata) (are|were|keep)\b": "singular",
    r"\bIn this (tutorial|notebook) you\b|\breading this page you\b": "a comma",
    r"\b\d{1,3} 000\b": "20,000",
    r"(?i)\b(after|to|back|up|down)wards\b": "American spelling",
    r"(?i)(colour|neighbour|behaviour|favour)": "American spelling",
    r"(?i)\b(un)?(normal|token|optim|serial|initial|summar|regular|recogn|quant|random"
    r"|general|parametr|vector|special|synchron|organ|minim|maxim|factor)is(e[ds]?|ing"
    r"|ation|er)\b": "American spelling",
    r"(?i)\b(labelled|labelling|centred|modelling|cancelled|grey|analyse[ds]?|artefact"
    r"|catalogue|judgement|metre)\b": "American spelling",
}
DOCSTRING_STARTS = {
    r"(What|Who|Whoever|Where|Those|How many|Whose)\b(?!.*\?)": "a noun phrase",
    r"(Tell|Say|Give|Have|Let)\b": "Return, Report, Provide",
    r"Return if\b": "Return whether",
}
IDENTIFIERS = {
    "told": "message, summary",
    "chance": "rng",
    "marks": "special_tokens",
    "blanks": "whitespace",
    "asked": "options, requested",
    "homeward": "backward",
    "onward": "forward",
    "lexicon": "vocabulary",
    "tokenised": "tokenized",
    "normalise": "normalize",
    "optimiser": "optimizer",
    "colour": "color",
    "colours": "colors",
    "neighbour": "neighbor",
    "neighbours": "neighbors",
}
# (file, text on the line) -> why the rule does not apply.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("docs/export.md", "blank English"): "the name of spaCy's empty pipeline",
    ("src/perron/integrations/corpora/parts.py", '"tokenised"'): "a key of format 1",
    ("tests/integrations/test_corpora_shards.py", '"tokenised"'): "a key of format 1",
    ("src/perron/migration_steps.py", "tokenised"): "a key of format 1",
    ("src/perron/migration_steps.py", "optimiser"): "a tensor name of format 1",
    ("src/perron/migration_steps.py", "commonest"): "a key of format 1",
    ("tests/test_migrations.py", "tokenised"): "a key of format 1",
    ("tests/test_migrations.py", "optimiser"): "a tensor name of format 1",
    ("tests/test_migrations.py", "commonest"): "a key of format 1",
    ("tests/test_earlier_formats.py", "two poolings"): "the title of a saved study",
    ("tests/serve/test_browser_states.py", "about:blank"): "an address",
    ("tests/serve/test_browser_viewer.py", "about:blank"): "an address",
    ("tests/test_benchmarks.py", "marks"): "an argument of pytest",
    ("tests/test_examples.py", "marks"): "an argument of pytest",
    ("tests/training/test_distributed.py", "marks"): "an argument of pytest",
}


class Finding(NamedTuple):
    file: str
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text.strip()!r}: write {self.advice}"


def tracked_files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(
            "the files of the project are listed by git, which is not available"
        )
    return [
        file
        for file in listed
        if Path(file).suffix in SUFFIXES
        and not file.startswith(EXCLUDED)
        and (ROOT / file).exists()
    ]


def python_text(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and text of comments and strings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def notebook_text(source: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each cell and the lines of its source."""
    for number, cell in enumerate(json.loads(source)["cells"], 1):
        for line in "".join(cell["source"]).splitlines():
            yield number, line


def text_of(file: str) -> list[tuple[int, str]]:
    source = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".py"):
        return list(python_text(source))
    if file.endswith(".ipynb"):
        return list(notebook_text(source))
    return list(enumerate(source.splitlines(), 1))


def is_excepted(file: str, text: str) -> bool:
    return any(file == name and part in text for name, part in EXCEPTIONS)


def check_phrases(file: str, lines: list[tuple[int, str]]) -> list[Finding]:
    return [
        Finding(file, number, text, advice)
        for number, text in lines
        for pattern, advice in PHRASES.items()
        if re.search(pattern, text) and not is_excepted(file, text)
    ]


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the content of each docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring


def check_docstrings(file: str, source: str) -> list[Finding]:
    findings = []
    for line, docstring in docstrings(source):
        for pattern, advice in DOCSTRING_STARTS.items():
            if re.match(pattern, docstring):
                first = docstring.splitlines()[0]
                findings.append(Finding(file, line, first, advice))
        entries = re.findall(
            r"^(?:Args|Attributes|Returns|Raises):\n((?:    .*\n?|\n)+)",
            docstring,
            re.M,
        )
        for entry in re.findall(r"^    \w+: [a-z].*", "".join(entries), re.M):
            findings.append(Finding(file, line, entry, "a noun phrase, capitalized"))
        verbs = (
            "Keep|Skip|Include|Normalize|Resume|Write|Use|Drop|Print|Show|Ignore|Add"
        )
        for entry in re.findall(rf"^    \w+: (?:{verbs}) .*", "".join(entries), re.M):
            findings.append(Finding(file, line, entry, "Whether to ..."))
        raises = re.findall(r"^Raises:\n((?:    .*\n?|\n)+)", docstring, re.M)
        for entry in re.findall(r"^    \w+: (?!If ).*", "".join(raises), re.M):
            findings.append(Finding(file, line, entry, "If ..."))
    return findings


def check_identifiers(file: str, source: str) -> list[Finding]:
    return [
        Finding(file, token.start[0], token.string, IDENTIFIERS[word])
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.NAME
        for word in token.string.lower().split("_")
        if word in IDENTIFIERS and not is_excepted(file, token.string)
    ]


def report(findings: list[Finding]) -> str:
    return "\n" + "\n".join(map(str, findings))


def test_no_page_comment_or_message_contains_a_banned_phrase():
    findings = [
        finding
        for file in tracked_files()
        for finding in check_phrases(file, text_of(file))
    ]
    assert not findings, report(findings)


def test_docstrings_name_what_they_describe():
    findings = [
        finding
        for file in tracked_files()
        if file.endswith(".py")
        for finding in check_docstrings(file, (ROOT / file).read_text("utf-8"))
    ]
    assert not findings, report(findings)


def test_identifiers_use_the_terms_of_the_field():
    findings = [
        finding
        for file in tracked_files()
        if file.endswith(".py")
        for finding in check_identifiers(file, (ROOT / file).read_text("utf-8"))
    ]
    assert not findings, report(findings)


def test_every_exception_is_needed():
    unused = [
        (file, part)
        for file, part in EXCEPTIONS
        if part not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert not unused


@pytest.mark.parametrize(
    "text",
    [
        "hidden must be at least 1, but came as 0",
        "model.json is no JSON",
        "words are parted by blanks",
        "training goes on where it stopped",
        "no better than the commonest class",
        "a text a line",
        "Who has GloVe gives it",
        "the colour of a neighbour",
        "tokenised by an optimiser",
        "texts of like length",
        "an unknown setting is an error that names it",
        "how other poolings do",
        "all 20 000 words",
    ],
)
def test_a_banned_phrase_is_found(text):
    assert check_phrases("page.md", [(1, text)])


@pytest.mark.parametrize(
    "text",
    [
        "hidden_dim must be at least 1, got 0.",
        "there is no word at padding",
        "this is no longer true",
        "separated by a blank line",
        "the stochastic matrix is normalized",
    ],
)
def test_plain_english_is_accepted(text):
    assert not check_phrases("page.md", [(1, text)])


def test_odd_docstrings_and_identifiers_are_found():
    source = '"""What is whole."""\ndef f(told):\n    """Tell it.\n\n    Args:\n'
    source += "        told: of everything.\n\n    Raises:\n"
    source += '        ValueError: It is empty.\n    """\n'
    assert len(check_docstrings("m.py", source)) == 4
    assert len(check_identifiers("m.py", source)) == 1
