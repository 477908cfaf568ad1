"""The standalone page, in a real browser."""

import dataclasses
import random
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from perron_tests.chromium import accessibility_problems, count_arcs, quiet_tab
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
    """Return a function that opens a page with records from a file."""
    tabs = []

    def open_page(rows, clipboard=True, **settings):
        file = tmp_path / "graph.html"
        file.write_text(html_page(rows), encoding="utf-8")
        context = quiet_tab(browser, **settings)
        tabs.append(context)
        tab = context.__enter__()
        if not clipboard:
            tab.add_init_script("delete Navigator.prototype.clipboard")
        tab.goto(file.as_uri())
        tab.wait_for_selector(".prediction")
        return tab

    yield open_page
    for context in tabs:
        context.__exit__(None, None, None)


def test_the_page_shows_words_prediction_and_strongest_edges(show):
    record = explained()
    tab = show([[record]])
    assert tab.locator(".word").all_text_contents() == record.words[0].nodes
    assert tab.locator(".prediction .label").text_content() == record.label
    assert tab.locator(".probabilities li").count() == len(record.probabilities)
    assert count_arcs(tab) == 2 * len(record.words[0].nodes)
    assert accessibility_problems(tab) == []


def test_the_slider_sets_the_number_of_edges(show):
    record = explained()
    tab = show([[record]])
    slider = tab.locator(".threshold")
    count = len(record.words[0].nodes)
    slider.focus()
    slider.press("End")
    assert count_arcs(tab) == count * (count - 1)
    slider.press("Home")
    assert count_arcs(tab) == 0
    assert tab.locator("output").text_content() == "none"
    slider.press("ArrowRight")
    assert count_arcs(tab) == 1
    edges = record.words[0].edges()
    np.fill_diagonal(edges, 0)
    assert f"at least {edges.max():#.2g}" in tab.locator("output").text_content()


@pytest.mark.parametrize("aggregator", ["centrality", "centrality, l2"])
def test_hovering_over_a_word_shows_its_flows(show, aggregator):
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
        for index, node in enumerate(np.argsort(-shares)[:5]):
            text = items.nth(index).text_content()
            assert text == f"{names[node]}{short(100 * shares[node])} %"
        assert short(100 * np.sort(shares)[:-5].sum()) in items.nth(5).text_content()
        assert count_arcs(tab, kind) == len(shares) - 1
    tab.locator("h1").hover()
    assert count_arcs(tab, "in") == 0
    assert "Hover over a word" in tab.locator(".details").text_content()


def short(value):
    return f"{value:.0f}" if value >= 9.95 else f"{value:#.2g}"


def test_each_head_has_its_own_weights_and_edges(show):
    record = explained(aggregator="centrality, l2")
    tab = show([[record]])
    (graph,) = record.words
    for choice, weights in (
        (0, graph.weights),
        (2, graph.heads[1].weights),
        (1, graph.heads[0].weights),
    ):
        tab.locator("select.heads").select_option(index=choice)
        label = tab.locator(".word").nth(3).get_attribute("aria-label")
        assert label == f"{graph.nodes[3]}, {short(100 * weights[3])} %"
        assert count_arcs(tab) == 2 * len(graph.nodes)


def test_the_page_can_be_used_with_the_keyboard_alone(show):
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
    assert count_arcs(tab, "in") > 0
    tab.keyboard.press("End")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(focused) == nodes[-1]
    tab.keyboard.press("Enter")
    assert tab.locator("[aria-selected=true]").all_text_contents() == [nodes[-1]]
    tab.keyboard.press("Home")
    tab.keyboard.press("Escape")
    assert tab.locator("[aria-selected=true]").count() == 0
    tab.keyboard.press("Tab")  # the words are a single tab stop
    assert tab.evaluate("document.activeElement === document.body")


def test_the_up_and_down_arrows_change_the_line(show):
    tab = show([[explained()]], viewport={"width": 360, "height": 700})
    first = tab.locator(".word").first
    first.focus()
    top = first.bounding_box()["y"]
    tab.keyboard.press("ArrowDown")
    box = tab.locator(".word:focus").bounding_box()
    assert box["y"] > top
    assert box["x"] == first.bounding_box()["x"]
    tab.keyboard.press("ArrowUp")
    assert tab.locator(".word:focus").bounding_box()["y"] == top


def test_the_premise_is_above_the_hypothesis(show):
    record = explained("pair")
    tab = show([[record]])
    assert tab.locator("h3").all_text_contents() == ["Premise", "Hypothesis"]
    lists = tab.locator("[role=listbox]")
    for part in range(2):
        words = lists.nth(part).locator(".word").all_text_contents()
        assert words == record.words[part].nodes
    assert lists.nth(0).bounding_box()["y"] < lists.nth(1).bounding_box()["y"]
    assert accessibility_problems(tab) == []


def test_a_document_has_a_bar_of_sentences_and_the_words_of_the_pinned_one(show):
    record = explained("document")
    tab = show([[record]])
    bar = tab.locator(".sentences .word")
    count = len(record.sentences.nodes)
    assert bar.all_text_contents() == [str(1 + node) for node in range(count)]
    heaviest = int(np.argmax(record.sentences.weights))
    words = tab.locator(".sentence-words .word")
    assert words.all_text_contents() == record.words[heaviest].nodes
    other = (heaviest + 1) % count
    bar.nth(other).click()
    assert words.all_text_contents() == record.words[other].nodes
    assert f"Sentence {other + 1} has " in tab.locator(".details").text_content()
    assert accessibility_problems(tab) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_models_are_side_by_side_or_stacked_in_narrow_windows(show, scheme):
    row = [
        explained(),
        explained(aggregator="self-attention"),
        explained(aggregator="max"),
    ]
    tab = show([row], color_scheme=scheme, viewport={"width": 1400, "height": 800})
    cards = tab.locator(".card")
    tops = [card.bounding_box()["y"] for card in cards.all()]
    assert len(set(tops)) == 1
    notes = tab.locator(".no-graph").all_text_contents()
    assert [re.search("[a-z-]+ pooling", note).group() for note in notes] == [
        "self-attention pooling",
        "max pooling",
    ]
    assert accessibility_problems(tab) == []
    tab.set_viewport_size({"width": 360, "height": 700})
    tops = [card.bounding_box()["y"] for card in cards.all()]
    assert sorted(set(tops)) == tops
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    assert accessibility_problems(tab) == []


def test_records_are_drawn_when_they_become_visible(show):
    record = explained()
    tab = show([[record]] * 60)
    assert 0 < tab.locator(".prediction").count() < 10
    # Pressing End would not be enough, because the page grows while it is drawn.
    tab.locator(".record").last.scroll_into_view_if_needed()
    tab.locator(".record").last.locator(".prediction").wait_for()


def test_all_records_are_drawn_before_printing(show):
    tab = show([[explained()]] * 60)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator(".prediction").count() == 60


def test_texts_are_not_interpreted_as_markup(show):
    text = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> &amp; film"
    record = explained("text", text, aggregator="max")
    tab = show([[record]])
    assert tab.locator(".word").all_text_contents() == record.words[0].nodes
    assert tab.locator("main img, main script").count() == 0


@pytest.mark.parametrize(
    ("kind", "text"), [("text", ""), ("document", " "), ("text", "a")]
)
def test_empty_texts_and_single_words_can_be_shown(show, kind, text):
    tab = show([[explained(kind, text)]])
    assert tab.locator(".no-words").count() == (0 if text.strip() else 1)
    assert tab.locator(".arcs path").count() == 0


def test_truncated_texts_have_a_note(show):
    tab = show([[explained("text", TEXT, words=4)]])
    assert "reads only the first 4 words" in tab.locator(".truncated").text_content()


def test_images_can_be_copied(show):
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
    types = "navigator.clipboard.read().then((items) => items[0].types)"
    assert tab.evaluate(types) == ["image/png"]


def test_images_are_saved_if_they_cannot_be_copied(show):
    record = explained()
    tab = show([[record]], clipboard=False)
    tab.locator(".word").nth(4).hover()
    with tab.expect_download() as download:
        tab.locator(".copy-svg").click()
    picture = ElementTree.parse(download.value.path()).getroot()
    namespace = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in picture.iter(f"{namespace}text")]
    assert texts[:-1] == record.words[0].nodes
    assert record.label in texts[-1]
    paths = list(picture.iter(f"{namespace}path"))
    assert len(paths) == tab.locator(".arcs path").count()
    assert "var(" not in ElementTree.tostring(picture, "unicode")
    with tab.expect_download() as download:
        tab.locator(".copy-png").click()
    assert download.value.suggested_filename == "word-graph.png"
    image = download.value.path().read_bytes()
    assert image.startswith(b"\x89PNG")
    width = int.from_bytes(image[16:20], "big")
    assert width == 2 * int(picture.get("width"))
    assert "Saved as word-graph.png" in tab.locator(".status").text_content()


def test_a_notebook_shows_the_page_in_a_frame(browser, tmp_path):
    record = explained()
    file = tmp_path / "notebook.html"
    assert record._repr_html_() == html_frame(record)
    file.write_text(f"<style>.word {{color: red}}</style>{html_frame(record)}")
    with quiet_tab(browser) as tab:
        tab.goto(file.as_uri())
        inner = tab.frame_locator("iframe")
        inner.locator(".word").first.wait_for()
        assert inner.locator(".word").all_text_contents() == record.words[0].nodes


def test_a_long_text_has_few_path_elements(show):
    rng = random.Random(0)
    text = " ".join(rng.choice(["good", "bad", "film", "odd"]) for _ in range(500))
    tab = show([[explained("text", text)]])
    assert tab.locator(".word").count() == 500
    assert 900 < count_arcs(tab) < 1200
    assert tab.locator(".arcs path").count() <= 12
    tab.locator(".threshold").press("End")
    assert 20_000 <= count_arcs(tab) < 21_000
