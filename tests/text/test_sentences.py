import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perron.errors import SettingsError
from perron.text.encoding import _pieces, _sentencizer, split_sentences

MARK = "<sssss>"
TEXTS = st.one_of(
    st.text(),
    st.text(st.sampled_from("aB .!?\n\"')")),
    st.lists(st.sampled_from([MARK, "<br />", " ", "Mr. A", "ok.", "\r\n", "!"])).map(
        "".join
    ),
)


def sentences(text, mark=None):
    (spans,) = split_sentences([text], mark)
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "want"),
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
def test_rules_find_sentences_line_by_line(text, want):
    assert sentences(text) == ([text] if want is None else want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a . b . <sssss> c\nd <sssss> ", ["a . b .", "c\nd"]),
        ("<sssss>a<sssss><sssss> <sssss>b", ["a", "b"]),
        ("Mr. A. B!", ["Mr. A. B!"]),
        ("<sssss>", []),
        ("", []),
    ],
)
def test_a_mark_is_the_only_end_of_a_sentence(text, want):
    assert sentences(text, MARK) == want


def test_a_mark_is_no_pattern():
    assert sentences("a.b|c", ".") == ["a", "b|c"]


@settings(deadline=None)
@given(texts=st.lists(TEXTS, max_size=4), mark=st.sampled_from([None, MARK]))
def test_sentences_are_apart_in_order_never_blank_and_leave_out_only_breaks(
    texts, mark
):
    found = split_sentences(texts, mark)
    assert found == [split_sentences([text], mark)[0] for text in texts]
    for text, spans in zip(texts, found, strict=True):
        end, between = 0, []
        for start, stop in spans:
            assert end <= start < stop
            assert text[start:stop] == text[start:stop].strip()
            between.append(text[end:start])
            end = stop
        breaks = [MARK] if mark else ["<br />"]
        for piece in [*between, text[end:]]:
            assert not piece.replace(breaks[0], " ").strip()


def test_a_long_run_of_blanks_takes_no_time():
    begin = time.perf_counter()
    assert sentences("a" + " " * 200_000 + "b\n") == ["a" + " " * 200_000 + "b"]
    # Hundredths of a second; were it quadratic, minutes.
    assert time.perf_counter() - begin < 5


def test_a_run_is_cut_only_if_it_is_longer_than_words_are():
    for text in ("", " ", "a b", "x" * 100 + " " + "!" * 100, "a\u00a0b" * 100):
        assert _pieces(text) == [text]
    text = "a b" + "!" * 230 + " c " + "?" * 101
    assert "".join(_pieces(text)) == text
    assert [len(piece) for piece in _pieces(text)] == [79, 77, 130, 51]


@pytest.mark.parametrize(
    "run",
    [
        "!" * 100_000,  # spaCy alone would take half an hour
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
def test_sentences_are_the_same_where_a_run_is_cut(text, run):
    short = run[:90]
    want = [part.replace(short, run) for part in sentences(text.format(short))]
    assert sentences(text.format(run)) == want


def test_without_spacy_the_extra_is_named(monkeypatch):
    _sentencizer.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(SettingsError, match=r"spacy.*perron\[documents\]"):
        split_sentences(["One. Two."])
    assert split_sentences(["One<s>Two"], "<s>") == [[(0, 3), (6, 9)]]
