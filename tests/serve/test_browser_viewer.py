"""The viewer in a real browser, with a real server."""

import json
import re

import numpy as np
import pytest
from perron_tests.chromium import count_arcs
from perron_tests.viewer import (
    DOCUMENT,
    EXPLAIN,
    NARROW,
    OTHER,
    TEXT,
    chip,
    field,
    open_tab,
)

from perron.explain import Explanation

pytestmark = pytest.mark.browser


def test_typing_shows_the_prediction_and_the_graph(tab, server, models, expect):
    tab.goto(server.url)
    expect(tab.get_by_text("start with an example")).to_be_visible()
    before = [tab.locator(f"#{name}").bounding_box() for name in ("text", "models")]
    field(tab, "Text").press_sequentially(TEXT, delay=15)
    expect(tab.locator(".word")).to_have_count(len(TEXT.split()) + 2)
    record = models["eigen"].explain(TEXT)
    assert tab.locator(".word").all_text_contents() == record.words[0].nodes
    assert tab.locator(".prediction .label").text_content() == record.label
    assert tab.locator(".probabilities li").count() == len(record.probabilities)
    assert count_arcs(tab) > 0
    after = [tab.locator(f"#{name}").bounding_box() for name in ("text", "models")]
    assert before == after  # nothing moves
    assert len(tab.requests) < len(TEXT) / 4  # not for every key
    assert tab.requests[-1] == {"model": "eigen", "texts": [TEXT], "pairs": None}
    percent = round(100 * record.probabilities[record.label])
    announcement = f"eigen: {record.label}, {percent} %"
    expect(tab.locator("#announcement")).to_have_text(announcement)


def test_text_entered_before_the_models_load_is_explained(tab, server, expect):
    held = []
    tab.route("**/v1/models", lambda route: held.append(route))
    tab.goto(server.url)
    field(tab, "Text").fill(OTHER)
    tab.wait_for_timeout(300)
    expect(tab.get_by_role("button", name="Download")).to_be_disabled()
    held[0].continue_()
    expect(tab.locator(".word")).to_have_text(OTHER.split())


def test_only_the_newest_results_are_shown(tab, server, expect):
    held, failed = [], []
    tab.on("requestfailed", lambda request: failed.append(request))
    tab.goto(server.url)
    tab.route(EXPLAIN, lambda route: held.append(route))
    with tab.expect_request(EXPLAIN):
        field(tab, "Text").fill(TEXT)
    cards = tab.locator("#cards")
    expect(cards).to_have_attribute("aria-busy", "true")
    assert tab.locator("#progress").text_content() == "Analyzing…"
    field(tab, "Text").fill(OTHER)
    while len(held) < 2:
        tab.wait_for_timeout(20)
    assert [request.post_data_json["texts"] for request in failed] == [[TEXT]]
    held[1].continue_()
    expect(tab.locator(".word")).to_have_text(OTHER.split())
    expect(cards).to_have_attribute("aria-busy", "false")
    assert tab.locator("#progress").text_content() == ""


def test_the_slider_sets_the_number_of_edges(tab, server):
    tab.goto(server.link(OTHER))
    slider = tab.locator("input.threshold")
    slider.press("End")
    assert count_arcs(tab) == 4 * 3
    slider.press("ArrowLeft")
    assert count_arcs(tab) == 4 * 3 - 1
    slider.press("Home")
    assert count_arcs(tab) == 0


def test_the_settings_of_the_graph_are_kept_for_the_next_text(tab, server, expect):
    tab.goto(server.link(OTHER))
    tab.locator("input.threshold").press("End")
    tab.locator("select.heads").select_option(index=2)
    field(tab, "Text").fill(f"{OTHER} it was")
    expect(tab.locator(".word")).to_have_count(6)
    assert tab.locator("select.heads").evaluate("select => select.selectedIndex") == 2
    assert count_arcs(tab) == 3 * 6  # three per word, as before


def test_hovering_over_a_word_shows_its_sources(tab, server, models):
    tab.goto(server.link(OTHER))
    tab.locator(".word", has_text="film").hover()
    (graph,) = models["eigen"].explain(OTHER).words
    flows = [np.array(head.edges)[1] * head.weights for head in graph.heads]
    mean_flows = np.mean(flows, 0)
    names = ["itself" if word == "film" else word for word in graph.nodes]
    details = tab.locator(".details").text_content()
    assert re.search("film has .* % of the weight", details)
    sources = tab.locator(".flow.in .name").all_text_contents()
    assert sources == [names[node] for node in np.argsort(-mean_flows)]


def test_each_head_has_its_own_weights(tab, server, models):
    tab.goto(server.link(TEXT))
    (graph,) = models["eigen"].explain(TEXT).words
    for choice, weights in enumerate(
        [graph.weights, *(head.weights for head in graph.heads)]
    ):
        tab.locator("select.heads").select_option(index=choice)
        label = tab.locator(".word").nth(4).get_attribute("aria-label")
        percent = float(re.search("[0-9.]+", label)[0])
        assert percent == pytest.approx(100 * weights[4], abs=0.051)


def test_models_are_compared_side_by_side(tab, server, models, expect):
    tab.goto(server.link(OTHER))
    chip(tab, "attentive").check()
    chip(tab, "highest").check()
    cards = tab.locator(".card")
    expect(cards).to_have_count(3)
    assert cards.locator("h2").all_text_contents() == ["eigen", "attentive", "highest"]
    for name, card in zip(("eigen", "attentive", "highest"), cards.all(), strict=True):
        label = models[name].explain(OTHER).label
        expect(card.locator(".label")).to_have_text(label)
        assert card.locator(".word").all_text_contents() == OTHER.split()
    assert "highest" in tab.url
    for name, reason in (
        ("attentive", "weights each word separately"),
        ("highest", "does not assign weights"),
    ):
        card = tab.locator(".card", has=tab.get_by_role("heading", name=name))
        expect(card.locator(".no-graph")).to_contain_text(reason)
    tops = [card.bounding_box()["y"] for card in cards.all()]
    assert tops[0] == tops[1]
    tab.set_viewport_size(NARROW)
    tops = [card.bounding_box()["y"] for card in cards.all()]
    assert tops == sorted(set(tops))  # stacked
    chip(tab, "eigen").uncheck()
    expect(cards).to_have_count(2)


def test_without_a_model_the_page_asks_for_one(tab, server, expect):
    tab.goto(server.link(OTHER))
    chip(tab, "eigen").uncheck()
    expect(tab.locator("#notice")).to_have_text(re.compile("Choose a model"))
    expect(tab.locator("#cards > *")).to_have_count(0)
    expect(tab.get_by_role("button", name="Download")).to_be_disabled()
    chip(tab, "eigen").check()
    expect(tab.locator(".word")).to_have_text(OTHER.split())
    expect(tab.locator("#notice")).to_be_empty()


def test_the_fields_depend_on_the_kind_of_model(tab, server, models, expect):
    tab.goto(server.link(TEXT))
    chip(tab, "pairs").check()
    expect(tab.locator("#status")).to_have_text(
        "Models for pairs cannot be compared with models for single texts. "
        "Deselected eigen."
    )
    assert not chip(tab, "eigen").is_checked()
    expect(field(tab, "Premise")).to_have_value(TEXT)  # the text is kept
    expect(tab.locator("#notice")).to_contain_text("Now enter the hypothesis")
    field(tab, "Premise").fill(OTHER)
    field(tab, "Hypothesis").fill("it was")
    expect(tab.locator(".word")).to_have_text([*OTHER.split(), "it", "was"])
    record = models["pairs"].explain(OTHER, "it was")
    expect(tab.locator(".label")).to_have_text(record.label)
    chip(tab, "reviews").check()
    field(tab, "Document").fill(DOCUMENT)
    expect(tab.locator(".sentences .word")).to_have_text(["1", "2", "3"])
    expect(field(tab, "Hypothesis")).to_be_hidden()
    assert "pair=" not in tab.url


@pytest.mark.parametrize("name", ["eigen", "pairs", "reviews"])
def test_every_example_can_be_clicked(tab, server, name, expect):
    tab.goto(server.link("", name))
    examples = tab.locator(".empty-state button")
    expect(examples.first).to_be_visible()  # after the models are loaded
    count = examples.count()
    assert count > 1
    for index in range(count):
        expect(examples).to_have_count(count)
        words = examples.nth(index).text_content().split()[:4]
        examples.nth(index).click()
        expect(tab.locator(".label")).to_be_visible()
        assert tab.locator("#text").input_value().split()[:4] == words
        assert tab.evaluate("document.activeElement.id") == "text"
        tab.get_by_role("button", name="Clear").click()
    tab.get_by_role("button", name="Try an example").click()
    expect(tab.locator(".label")).to_be_visible()


def test_a_permalink_restores_texts_and_models(tab, server, browser, expect):
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.goto(server.link("", "pairs"))
    premise = 'a film & it\'s "50 %" #1\n+ üñ 🎬'
    field(tab, "Premise").fill(premise)
    field(tab, "Hypothesis").fill(OTHER)
    expect(tab.locator(".label")).to_be_visible()
    tab.get_by_role("button", name="Copy link").click()
    expect(tab.locator("#status")).to_have_text("Link copied.")
    link = tab.evaluate("navigator.clipboard.readText()")
    assert link == tab.url
    assert "film" not in link.partition("#")[0]
    assert tab.evaluate("history.length") == 2  # no entries for edits
    with open_tab(browser) as other:
        other.goto(link)
        expect(field(other, "Premise")).to_have_value(premise)
        expect(field(other, "Hypothesis")).to_have_value(OTHER)
        expect(other.locator(".label")).to_be_visible()
        assert other.requests == [
            {"model": "pairs", "texts": [premise], "pairs": [OTHER]}
        ]


def test_changes_of_the_fragment_are_followed_if_valid(tab, server, expect):
    tab.goto(server.link(OTHER))
    expect(tab.locator(".word")).to_have_count(4)
    tab.evaluate("location.hash = 'text=good+film&model=highest&model=other'")
    expect(tab.locator(".word")).to_have_text(["good", "film"])
    assert tab.locator(".card h2").all_text_contents() == ["highest"]
    expect(tab.locator("#status")).to_have_text("Model not found: other.")
    for invalid in ("%E0%A4%A", "&&==", "x=1"):
        tab.evaluate("hash => { location.hash = hash; }", invalid)
        tab.wait_for_timeout(50)
        assert field(tab, "Text").input_value() == "good film"
    tab.goto("about:blank")
    tab.goto(f"{server.url}/#text=%E0%A4%A&model")
    expect(tab.locator(".label")).to_be_visible()


def test_records_can_be_downloaded(tab, server, models, expect):
    tab.goto(server.link(TEXT))
    button = tab.get_by_role("button", name="Download record")
    with tab.expect_download() as download:
        button.click()
    assert download.value.suggested_filename == "perron-eigen.json"
    text = download.value.path().read_text(encoding="utf-8")
    assert Explanation.from_json(text) == models["eigen"].explain(TEXT)
    chip(tab, "highest").check()
    expect(tab.locator(".card")).to_have_count(2)
    with tab.expect_download() as download:
        button.click()
    records = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert [record["model"]["name"] for record in records] == ["eigen", "highest"]
