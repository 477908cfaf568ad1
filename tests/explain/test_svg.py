import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from perron_tests.chromium import accessibility_problems, quiet_tab
from perron_tests.explanations import EVERY, HARD, PROSE, pair, plans, text

from perron.explain.images import to_svg

NAMES = {"s": "http://www.w3.org/2000/svg"}


def parse(record, head=None):
    return ElementTree.fromstring(to_svg(record, head).encode())


def words_of(tree):
    return tree.findall(".//s:g[@class='word']", NAMES)


@settings(deadline=None, max_examples=60)
@given(plans())
def test_any_text_makes_well_formed_xml(plan):
    record = plan()
    tree = parse(record)
    assert len(words_of(tree)) == sum(len(graph.nodes) for graph in record.graphs)


@pytest.mark.parametrize("name", EVERY)
def test_every_record_can_be_drawn(name):
    tree = parse(EVERY[name])
    assert tree.find("s:title", NAMES).text
    assert tree.find("s:desc", NAMES).text.startswith("Words")
    assert tree.get("viewBox") == f"0 0 {tree.get('width')} {tree.get('height')}"
    classes = " ".join(to_svg(EVERY[name]).split('class="')[1:])
    assert "None" not in classes


def test_words_are_accessible():
    record = text(["so", "<b>&\"'"])
    words = words_of(parse(record))
    for word, node in zip(words, record.words[0].nodes, strict=True):
        assert (word.get("tabindex"), word.get("role")) == ("0", "listitem")
        assert word.get("aria-label").startswith(f"{node}: ")
        assert word.find("s:title", NAMES).text == word.get("aria-label")
        assert word.find("s:text", NAMES).text == node
    (list_,) = parse(record).findall(".//s:g[@role='list']", NAMES)
    assert list_.get("aria-label") == "words"


def test_words_contain_their_own_arcs_and_cover_the_others():
    tree = parse(text())
    (inside,) = tree.findall(".//s:g[@class='words']", NAMES)
    first, *others = list(inside)
    assert (first.get("class"), first.get("aria-hidden")) == ("arcs", "true")
    assert len(first) == 16
    for word in others:
        own = [part for part in word if part.get("class", "").startswith("own")]
        assert [part.get("class") for part in own] == ["own in", "own out"]
        assert [len(part) for part in own] == [4, 4]


def test_a_record_without_edges_has_no_arcs():
    tree = parse(EVERY["no edges"])
    assert not tree.findall(".//s:g[@class='arcs']", NAMES)
    assert len(tree.findall(".//s:path[@d]", NAMES)) == 3  # of the markers


def test_text_keeps_its_width_in_any_font():
    for element in parse(pair()).iterfind(".//s:text", NAMES):
        assert float(element.get("textLength")) > 0
        assert element.get("lengthAdjust") == "spacingAndGlyphs"


def test_styles_are_scoped_to_the_image_and_include_a_dark_theme():
    style = parse(text()).find("s:style", NAMES).text
    light, dark = style.split("@media (prefers-color-scheme:dark)")
    for rule in [*light.splitlines(), *dark.strip("{}").splitlines()]:
        selectors = rule.split("{")[0].split(",")
        assert all(part.startswith(".perron-graph") for part in selectors), rule
    used = set(re.findall(r'class="(s\d+|a\d+)"', to_svg(text(HARD))))
    assert used
    for name in used:
        assert f".{name}{{" in light
        assert name.startswith("a") or f".{name}{{" in dark


def test_the_image_has_no_scripts_or_external_references():
    image = to_svg(EVERY["hard to escape"])
    assert "<script" not in image
    for reference in re.findall(r"(?:https?:)?//[^\"]+", image):
        assert reference.startswith("http://www.w3.org/")


def test_the_image_of_a_long_text_is_small():
    assert len(to_svg(text(PROSE * 9))) < 500_000


def test_a_record_can_draw_a_single_head():
    record = pair(heads=2)
    assert record.to_svg(1) == to_svg(record, 1) != record.to_svg()
    with pytest.raises(ValueError, match="head 3"):
        record.to_svg(3)


@pytest.mark.browser
class TestInABrowser:
    @pytest.fixture
    def tab(self, browser, tmp_path):
        path = Path(tmp_path / "graph.svg")
        path.write_text(to_svg(text(PROSE)), encoding="utf-8")
        with quiet_tab(browser) as tab:
            tab.goto(path.as_uri())
            yield tab

    def test_a_word_under_the_pointer_shows_its_own_arcs(self, tab):
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
        for word in PROSE[:3]:
            tab.keyboard.press("Tab")
            label = tab.evaluate("document.activeElement.getAttribute('aria-label')")
            assert label.startswith(word)
            assert tab.locator(".own:visible").count() == 2

    def test_the_background_follows_the_theme(self, tab):
        for scheme, paper in (("light", "255, 255, 255"), ("dark", "24, 25, 29")):
            tab.emulate_media(color_scheme=scheme)
            fill = "getComputedStyle(document.querySelector('.paper')).fill"
            assert tab.evaluate(fill) == f"rgb({paper})"

    @pytest.mark.parametrize("name", ["text", "pair", "document", "hard to escape"])
    def test_an_inline_image_is_accessible(self, browser, name):
        with quiet_tab(browser) as tab:
            tab.set_content(
                "<!DOCTYPE html><html lang='en' style='background: white'>"
                f"<title>graph</title><main><h1>graph</h1>{to_svg(EVERY[name])}</main></html>"
            )
            assert accessibility_problems(tab) == []
