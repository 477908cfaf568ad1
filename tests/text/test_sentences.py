import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perron.errors import SettingsError
from perron.text.encoding import _sentencizer, _split_long_runs, split_sentences

SEPARATOR = "<sssss>"
TEXTS = st.one_of(
    st.text(),
    st.text(st.sampled_from("aB .!?\n\"')")),
    st.lists(
        st.sampled_from([SEPARATOR, "<br />", " ", "Mr. A", "ok.", "\r\n", "!"])
    ).map("".join),
)


def sentences(text, separator=None):
    (spans,) = split_sentences([text], separator)
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Mr. Doe saw the U.S. film, e.g. here.", None),
        ("J. R. Doe paid $3.50... for it", None),
        ('He said "no." Then left.', ['He said "no."', "Then left."]),
        ("Hi!!! What?! So", ["Hi!!!", "What?!", "So"]),
        (
            " no stop<br /><BR>next\nline\r\nthird ",
            ["no stop", "next", "line", "third"],
        ),
        ("...", None),
        ("", []),
        (" \n<br>\t", []),
        ("a <sssss> b", None),
    ],
)
def test_rules_split_each_line_into_sentences(text, expected):
    assert sentences(text) == ([text] if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a . b . <sssss> c\nd <sssss> ", ["a . b .", "c\nd"]),
        ("<sssss>a<sssss><sssss> <sssss>b", ["a", "b"]),
        ("Mr. A. B!", ["Mr. A. B!"]),
        ("<sssss>", []),
        ("", []),
    ],
)
def test_a_separator_is_the_only_sentence_boundary(text, expected):
    assert sentences(text, SEPARATOR) == expected


def test_a_separator_is_not_a_regular_expression():
    assert sentences("a.b|c", ".") == ["a", "b|c"]


@settings(deadline=None)
@given(texts=st.lists(TEXTS, max_size=4), separator=st.sampled_from([None, SEPARATOR]))
def test_sentences_are_disjoint_sorted_stripped_and_omit_only_breaks(texts, separator):
    result = split_sentences(texts, separator)
    assert result == [split_sentences([text], separator)[0] for text in texts]
    for text, spans in zip(texts, result, strict=True):
        end, between = 0, []
        for start, stop in spans:
            assert end <= start < stop
            assert text[start:stop] == text[start:stop].strip()
            between.append(text[end:start])
            end = stop
        line_break = SEPARATOR if separator else "<br />"
        for gap in [*between, text[end:]]:
            assert not gap.replace(line_break, " ").strip()


def test_a_long_run_of_spaces_is_fast():
    begin = time.perf_counter()
    assert sentences("a" + " " * 200_000 + "b\n") == ["a" + " " * 200_000 + "b"]
    # Takes hundredths of a second; a quadratic algorithm would take minutes.
    assert time.perf_counter() - begin < 5


def test_only_long_runs_are_split():
    for text in ("", " ", "a b", "x" * 100 + " " + "!" * 100, "a\u00a0b" * 100):
        assert _split_long_runs(text) == [text]
    text = "a b" + "!" * 230 + " c " + "?" * 101
    assert "".join(_split_long_runs(text)) == text
    assert [len(chunk) for chunk in _split_long_runs(text)] == [79, 77, 130, 51]


@pytest.mark.parametrize(
    "run",
    [
        "!" * 100_000,  # takes half an hour without splitting
        "(" * 100_000,
        "'s" * 50_000,
        "." * 301,
        "-" * 250,
        "www.example.org/" + "a" * 300,
    ],
)
@pytest.mark.parametrize(
    "text", [" See {} there. And so on.", "Well{}", "{} So", 'Is "it{}" so? No.']
)
def test_splitting_a_long_run_does_not_change_the_sentences(text, run):
    short = run[:90]
    expected = [part.replace(short, run) for part in sentences(text.format(short))]
    assert sentences(text.format(run)) == expected


def test_the_error_for_a_missing_spacy_names_the_extra(monkeypatch):
    _sentencizer.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(SettingsError, match=r"spacy.*perron\[documents\]"):
        split_sentences(["One. Two."])
    assert split_sentences(["One<s>Two"], "<s>") == [[(0, 3), (6, 9)]]
