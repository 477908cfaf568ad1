"""The page in one file, in a real browser."""

import dataclasses
import random
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from perron_tests.chromium import arcs, faults_of, quiet_tab
from perron_tests.pipelines import small_pipeline

from perron.explain.views import html_frame, html_page

pytestmark = pytest.mark.browser

TEXT = "It was not a good film, was it?"
DOCUMENT = "Good film. It was good! The film was bad? Not it. It was a film."


def explained(kind="text", *texts, words=500, **settings):
    pipeline = small_pipeline(kind, **settings)
    reads = dataclasses.replace(pipeline.processor, max_words=words)
    pipeline.processor = reads
    default = {"text": [TEXT], "pair": [TEXT, "a bad film"], "document": [DOCUMENT]}
    return pipeline.explain(*(texts or default[kind]))


@pytest.fixture
def show(browser, tmp_path):
    """Open a page of records, as a file; what is wrong with it comes to light."""
    opened = []

    def open_page(rows, clipboard=True, **settings):
        file = tmp_path / "graph.html"
        file.write_text(html_page(rows), encoding="utf-8")
        shown = quiet_tab(browser, **settings)
        opened.append(shown)
        tab = shown.__enter__()
        if not clipboard:
            tab.add_init_script("delete Navigator.prototype.clipboard")
        tab.goto(file.as_uri())
        tab.wait_for_selector(".prediction")
        return tab

    yield open_page
    for shown in opened:
        shown.__exit__(None, None, None)


def test_words_prediction_and_strongest_edges_are_there(show):
    record = explained()
    tab = show([[record]])
    assert tab.locator(".word").all_text_contents() == record.words[0].nodes
    assert tab.locator(".prediction .label").text_content() == record.label
    assert tab.locator(".probabilities li").count() == len(record.probabilities)
    assert arcs(tab) == 2 * len(record.words[0].nodes)
    assert faults_of(tab) == []


def test_the_slider_shows_from_no_edge_to_all(show):
    record = explained()
    tab = show([[record]])
    slider = tab.locator(".threshold")
    count = len(record.words[0].nodes)
    slider.focus()
    slider.press("End")
    assert arcs(tab) == count * (count - 1)
    slider.press("Home")
    assert arcs(tab) == 0
    assert tab.locator("output").text_content() == "none"
    slider.press("ArrowRight")
    assert arcs(tab) == 1
    edges = record.words[0].edges()
    np.fill_diagonal(edges, 0)
    assert f"from {edges.max():#.2g} up" in tab.locator("output").text_content()


@pytest.mark.parametrize("aggregator", ["centrality", "centrality, l2"])
def test_a_word_tells_whence_its_importance_comes_and_where_it_goes(show, aggregator):
    record = explained(aggregator=aggregator)
    tab = show([[record]])
    (graph,) = record.words
    flows = np.mean([np.array(h.edges) * h.weights for h in graph.heads], axis=0)
    np.testing.assert_allclose(flows.sum(1), graph.weights, rtol=1e-5)
    tab.locator(".word").nth(4).hover()
    for kind, shares in (("in", flows[4]), ("out", flows[:, 4])):
        items = tab.locator(f".flow.{kind} li")
        names = [
            "itself" if node == 4 else word for node, word in enumerate(graph.nodes)
        ]
        for place, node in enumerate(np.argsort(-shares)[:5]):
            told = items.nth(place).text_content()
            assert told == f"{names[node]}{short(100 * shares[node])} %"
        assert short(100 * np.sort(shares)[:-5].sum()) in items.nth(5).text_content()
        assert arcs(tab, kind) == len(shares) - 1
    tab.locator("h1").hover()
    assert arcs(tab, "in") == 0
    assert "Point at a word" in tab.locator(".details").text_content()


def short(value):
    return f"{value:.0f}" if value >= 9.95 else f"{value:#.2g}"


def test_heads_have_weights_and_edges_of_their_own(show):
    record = explained(aggregator="centrality, l2")
    tab = show([[record]])
    (graph,) = record.words
    for choice, weights in (
        (0, graph.weights),
        (2, graph.heads[1].weights),
        (1, graph.heads[0].weights),
    ):
        tab.locator("select.heads").select_option(index=choice)
        told = tab.locator(".word").nth(3).get_attribute("aria-label")
        assert told == f"{graph.nodes[3]}, {short(100 * weights[3])} %"
        assert arcs(tab) == 2 * len(graph.nodes)


def test_by_keyboard_alone(show):
    record = explained()
    tab = show([[record]])
    for stop in ("threshold", "copy-svg", "copy-png", "word"):
        tab.keyboard.press("Tab")
        assert stop in tab.evaluate("document.activeElement.className")
    focused = "document.activeElement.textContent"
    nodes = record.words[0].nodes
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(focused) == nodes[2]
    assert arcs(tab, "in") > 0
    tab.keyboard.press("End")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(focused) == nodes[-1]
    tab.keyboard.press("Enter")
    assert tab.locator("[aria-selected=true]").all_text_contents() == [nodes[-1]]
    tab.keyboard.press("Home")
    tab.keyboard.press("Escape")
    assert tab.locator("[aria-selected=true]").count() == 0
    tab.keyboard.press("Tab")  # one step is enough to leave the words
    assert tab.evaluate("document.activeElement === document.body")


def test_arrows_up_and_down_change_the_line(show):
    tab = show([[explained()]], viewport={"width": 360, "height": 700})
    first = tab.locator(".word").first
    first.focus()
    top = first.bounding_box()["y"]
    tab.keyboard.press("ArrowDown")
    place = tab.locator(".word:focus").bounding_box()
    assert place["y"] > top
    assert place["x"] == first.bounding_box()["x"]
    tab.keyboard.press("ArrowUp")
    assert tab.locator(".word:focus").bounding_box()["y"] == top


def test_the_premise_stands_above_the_hypothesis(show):
    record = explained("pair")
    tab = show([[record]])
    assert tab.locator("h3").all_text_contents() == ["Premise", "Hypothesis"]
    lists = tab.locator("[role=listbox]")
    for part in range(2):
        words = lists.nth(part).locator(".word").all_text_contents()
        assert words == record.words[part].nodes
    assert lists.nth(0).bounding_box()["y"] < lists.nth(1).bounding_box()["y"]
    assert faults_of(tab) == []


def test_a_document_has_a_bar_of_sentences_and_the_words_of_one(show):
    record = explained("document")
    tab = show([[record]])
    bar = tab.locator(".sentences .word")
    count = len(record.sentences.nodes)
    assert bar.all_text_contents() == [str(1 + node) for node in range(count)]
    heaviest = int(np.argmax(record.sentences.weights))
    words = tab.locator(".inside .word")
    assert words.all_text_contents() == record.words[heaviest].nodes
    other = (heaviest + 1) % count
    bar.nth(other).click()
    assert words.all_text_contents() == record.words[other].nodes
    assert f"Sentence {other + 1} weighs" in tab.locator(".details").text_content()
    assert faults_of(tab) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_models_stand_side_by_side_and_below_each_other_where_it_is_narrow(
    show, scheme
):
    row = [
        explained(),
        explained(aggregator="self-attention"),
        explained(aggregator="max"),
    ]
    tab = show([row], color_scheme=scheme, viewport={"width": 1400, "height": 800})
    cards = tab.locator(".card")
    tops = [cards.nth(place).bounding_box()["y"] for place in range(3)]
    assert len(set(tops)) == 1
    notes = tab.locator(".no-graph").all_text_contents()
    assert [re.search("[a-z-]+ pooling", note).group() for note in notes] == [
        "self-attention pooling",
        "max pooling",
    ]
    assert faults_of(tab) == []
    tab.set_viewport_size({"width": 360, "height": 700})
    tops = [cards.nth(place).bounding_box()["y"] for place in range(3)]
    assert sorted(set(tops)) == tops
    wide = "document.documentElement.scrollWidth"
    assert tab.evaluate(wide) == 360
    assert faults_of(tab) == []


def test_a_long_page_is_drawn_when_it_is_seen(show):
    record = explained()
    tab = show([[record]] * 60)
    assert 0 < tab.locator(".prediction").count() < 10
    # Not by a key: the page grows while it is drawn, so that its end moves on.
    tab.locator(".record").last.scroll_into_view_if_needed()
    tab.locator(".record").last.locator(".prediction").wait_for()


def test_all_of_a_long_page_is_drawn_on_paper(show):
    tab = show([[explained()]] * 60)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator(".prediction").count() == 60


def test_text_is_never_markup(show):
    text = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> &amp; film"
    record = explained("text", text, aggregator="max")
    tab = show([[record]])
    assert tab.locator(".word").all_text_contents() == record.words[0].nodes
    assert tab.locator("main img, main script").count() == 0


@pytest.mark.parametrize(
    ("kind", "text"), [("text", ""), ("document", " "), ("text", "a")]
)
def test_little_is_shown_of_little(show, kind, text):
    tab = show([[explained(kind, text)]])
    assert tab.locator(".no-words").count() == (0 if text.strip() else 1)
    assert tab.locator(".arcs path").count() == 0


def test_what_is_cut_is_said(show):
    tab = show([[explained("text", TEXT, words=4)]])
    assert "reads only the first 4 words" in tab.locator(".cut").text_content()


def test_a_picture_is_copied(show):
    record = explained()
    tab = show([[record]], permissions=["clipboard-read", "clipboard-write"])
    tab.locator(".copy-svg").click()
    status = tab.locator(".status")
    status.get_by_text("SVG copied").wait_for()
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("<svg")
    assert all(f">{word}</text>" in copied for word in record.words[0].nodes)
    tab.locator(".copy-png").click()
    status.get_by_text("PNG copied").wait_for()
    kinds = "navigator.clipboard.read().then((items) => items[0].types)"
    assert tab.evaluate(kinds) == ["image/png"]


def test_where_nothing_can_be_copied_the_picture_is_saved(show):
    record = explained()
    tab = show([[record]], clipboard=False)
    tab.locator(".word").nth(4).hover()
    with tab.expect_download() as download:
        tab.locator(".copy-svg").click()
    picture = ElementTree.parse(download.value.path()).getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in picture.iter(f"{space}text")]
    assert texts[:-1] == record.words[0].nodes
    assert record.label in texts[-1]
    drawn = tab.locator(".arcs path").count()
    assert len(list(picture.iter(f"{space}path"))) == drawn
    assert "var(" not in ElementTree.tostring(picture, "unicode")
    with tab.expect_download() as download:
        tab.locator(".copy-png").click()
    assert download.value.suggested_filename == "word-graph.png"
    image = download.value.path().read_bytes()
    assert image.startswith(b"\x89PNG")
    width = int.from_bytes(image[16:20], "big")
    assert width == 2 * int(picture.get("width"))
    assert "Saved as word-graph.png" in tab.locator(".status").text_content()


def test_a_notebook_shows_it_in_a_frame(browser, tmp_path):
    record = explained()
    file = tmp_path / "notebook.html"
    assert record._repr_html_() == html_frame(record)
    file.write_text(f"<style>.word {{color: red}}</style>{html_frame(record)}")
    with quiet_tab(browser) as tab:
        tab.goto(file.as_uri())
        inner = tab.frame_locator("iframe")
        inner.locator(".word").first.wait_for()
        assert inner.locator(".word").all_text_contents() == record.words[0].nodes


def test_five_hundred_words_are_few_elements(show):
    rng = random.Random(0)
    text = " ".join(rng.choice(["good", "bad", "film", "odd"]) for _ in range(500))
    tab = show([[explained("text", text)]])
    assert tab.locator(".word").count() == 500
    assert 900 < arcs(tab) < 1200
    assert tab.locator(".arcs path").count() <= 12
    tab.locator(".threshold").press("End")
    assert 20_000 <= arcs(tab) < 21_000
