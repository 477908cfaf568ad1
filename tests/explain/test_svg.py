import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from perron_tests.chromium import faults_of, quiet_tab
from perron_tests.explanations import EVERY, HARD, PROSE, pair, plans, text

from perron.explain.images import svg

NAMES = {"s": "http://www.w3.org/2000/svg"}


def parsed(record, head=None):
    return ElementTree.fromstring(svg(record, head).encode())


def words_of(tree):
    return tree.findall(".//s:g[@class='word']", NAMES)


@settings(deadline=None, max_examples=60)
@given(plans())
def test_any_text_makes_well_formed_xml(plan):
    record = plan()
    tree = parsed(record)
    words = sum(len(graph.nodes) for graph in record.graphs)
    assert len(words_of(tree)) == words


@pytest.mark.parametrize("name", EVERY)
def test_every_record_can_be_drawn(name):
    tree = parsed(EVERY[name])
    assert tree.find("s:title", NAMES).text
    assert tree.find("s:desc", NAMES).text.startswith("What the words weigh")
    assert tree.get("viewBox") == f"0 0 {tree.get('width')} {tree.get('height')}"
    classes = " ".join(svg(EVERY[name]).split('class="')[1:])
    assert "None" not in classes


def test_each_word_can_be_reached_and_read_out():
    record = text(["so", "<b>&\"'"])
    words = words_of(parsed(record))
    for word, node in zip(words, record.words[0].nodes, strict=True):
        assert (word.get("tabindex"), word.get("role")) == ("0", "listitem")
        assert word.get("aria-label").startswith(f"{node}: ")
        assert word.find("s:title", NAMES).text == word.get("aria-label")
        assert word.find("s:text", NAMES).text == node
    (list_,) = parsed(record).findall(".//s:g[@role='list']", NAMES)
    assert list_.get("aria-label") == "words"


def test_arcs_lie_behind_the_words_and_own_arcs_in_them():
    tree = parsed(text())
    (inside,) = tree.findall(".//s:g[@class='words']", NAMES)
    first, *others = list(inside)
    assert (first.get("class"), first.get("aria-hidden")) == ("arcs", "true")
    assert len(first) == 16
    for word in others:
        own = [part for part in word if part.get("class", "").startswith("own")]
        assert [part.get("class") for part in own] == ["own in", "own out"]
        assert [len(part) for part in own] == [4, 4]


def test_a_record_without_edges_has_no_arcs():
    tree = parsed(EVERY["no edges"])
    assert not tree.findall(".//s:g[@class='arcs']", NAMES)
    assert not tree.findall(".//s:path[@d]", {"s": NAMES["s"]})[3:]  # but the markers'


def test_text_keeps_its_width_in_any_font():
    for element in parsed(pair()).iterfind(".//s:text", NAMES):
        assert float(element.get("textLength")) > 0
        assert element.get("lengthAdjust") == "spacingAndGlyphs"


def test_styles_reach_no_further_than_the_picture_and_know_the_dark():
    style = parsed(text()).find("s:style", NAMES).text
    day, night = style.split("@media (prefers-color-scheme:dark)")
    for rule in [*day.splitlines(), *night.strip("{}").splitlines()]:
        selectors = rule.split("{")[0].split(",")
        assert all(one.startswith(".perron-graph") for one in selectors), rule
    used = set(re.findall(r'class="(s\d+|a\d+)"', svg(text(HARD))))
    assert used
    for name in used:
        assert f".{name}{{" in day
        assert name.startswith("a") or f".{name}{{" in night


def test_nothing_in_it_is_run_or_fetched():
    written = svg(EVERY["hard to write"])
    assert "<script" not in written
    for reference in re.findall(r"(?:https?:)?//[^\"]+", written):
        assert reference.startswith("http://www.w3.org/")


def test_a_long_text_stays_small():
    assert len(svg(text(PROSE * 9))) < 500_000


def test_the_record_draws_itself():
    record = pair(heads=2)
    assert record.to_svg(1) == svg(record, 1) != record.to_svg()
    with pytest.raises(ValueError, match="head 3"):
        record.to_svg(3)


@pytest.mark.browser
class TestInABrowser:
    @pytest.fixture
    def tab(self, browser, tmp_path):
        path = Path(tmp_path / "graph.svg")
        path.write_text(svg(text(PROSE)), encoding="utf-8")
        with quiet_tab(browser) as tab:
            tab.goto(path.as_uri())
            yield tab

    def test_a_word_that_is_pointed_at_shows_its_own_arcs(self, tab):
        word = tab.locator(".word").nth(3)
        assert tab.locator(".own:visible").count() == 0
        word.hover()
        assert word.locator(".own:visible").count() == 2
        assert tab.locator(".own:visible").count() == 2
        arcs = "getComputedStyle(document.querySelector('.arcs'))"
        tab.wait_for_function(f"{arcs}.opacity == 0.15")
        tab.mouse.move(0, 0)
        assert tab.locator(".own:visible").count() == 0
        tab.wait_for_function(f"{arcs}.opacity == 1")

    def test_the_keyboard_reaches_every_word(self, tab):
        for place in range(3):
            tab.keyboard.press("Tab")
            told = tab.evaluate("document.activeElement.getAttribute('aria-label')")
            assert told.startswith(PROSE[place])
            assert tab.locator(".own:visible").count() == 2

    def test_the_dark_is_dark(self, tab):
        for scheme, paper in (("light", "255, 255, 255"), ("dark", "24, 25, 29")):
            tab.emulate_media(color_scheme=scheme)
            fill = "getComputedStyle(document.querySelector('.paper')).fill"
            assert tab.evaluate(fill) == f"rgb({paper})"

    @pytest.mark.parametrize("name", ["text", "pair", "document", "hard to write"])
    def test_it_may_stand_in_a_page_for_everyone(self, browser, name):
        with quiet_tab(browser) as tab:
            tab.set_content(
                "<!DOCTYPE html><html lang='en' style='background: white'>"
                f"<title>graph</title><main><h1>graph</h1>{svg(EVERY[name])}</main></html>"
            )
            assert faults_of(tab) == []
