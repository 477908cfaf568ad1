"""The viewer when something is wrong, narrow, or used without a mouse."""

import re
from copy import copy

import pytest
from perron_tests.chromium import faults_of
from perron_tests.viewer import (
    NARROW,
    OTHER,
    REFUSED,
    TEXT,
    WIDE,
    Running,
    chip,
    field,
    stands_still,
    tab_of,
)

pytestmark = pytest.mark.browser


def test_what_is_too_long_is_told_with_its_limit(browser, server, expect):
    with tab_of(browser, [REFUSED]) as tab:
        tab.goto(server.address)
        field(tab, "Text").fill("film " * 601)
        told = tab.get_by_role("alert")
        expect(told).to_contain_text("600 words")
        expect(tab.locator("#cards > *")).to_have_count(0)
        field(tab, "Text").fill(OTHER)
        expect(tab.locator(".word")).to_have_text(OTHER.split())
        expect(tab.locator("#notice")).to_be_empty()
    with tab_of(browser) as tab:
        tab.goto(server.link("film " * 11, "highest"))
        expect(tab.locator(".cut")).to_contain_text("only the first 10 words")


def test_a_server_that_is_gone_and_back_is_asked_again(browser, models, expect):
    running = Running([models["eigen"]])
    try:
        with tab_of(browser, [REFUSED]) as tab:
            tab.goto(running.link(OTHER))
            expect(tab.locator(".word")).to_have_count(4)
            running.stop()
            field(tab, "Text").fill(TEXT)
            told = tab.get_by_role("alert")
            expect(told).to_contain_text("The server does not answer")
            tab.get_by_role("button", name="Try again").click()
            expect(told).to_contain_text("What you typed is kept")
            running.start()
            tab.get_by_role("button", name="Try again").click()
            expect(tab.locator(".label")).to_be_visible()
            assert tab.locator(".word").first.text_content() == "It"
            assert tab.evaluate("document.activeElement.id") == "results"
    finally:
        running.stop()


def test_a_busy_server_is_asked_again_by_itself(browser, server, expect):
    service = server.app.state.service
    with tab_of(browser, [REFUSED]) as tab:
        tab.goto(server.address)
        expect(chip(tab, "eigen")).to_be_checked()
        service.stopping = True
        try:
            field(tab, "Text").fill(OTHER)
            progress = tab.locator("#progress")
            expect(progress).to_have_text(re.compile(r"busy; .* 1 s \(1 of 3\)"))
        finally:
            service.stopping = False
        expect(tab.locator(".word")).to_have_text(OTHER.split())
        expect(progress).to_be_empty()


def test_a_key_is_asked_for_and_forgotten_with_the_tab(browser, models, expect):
    running = Running([models["eigen"]], key="a-secret")
    try:
        with tab_of(browser, [REFUSED]) as tab:
            tab.goto(running.link(OTHER))
            key = tab.get_by_label("API key")
            expect(key).to_be_focused()
            assert key.get_attribute("type") == "password"
            tab.keyboard.type("wrong")
            tab.keyboard.press("Enter")
            expect(tab.locator("#notice")).to_contain_text("did not accept")
            expect(key).to_be_focused()
            key.fill("a-secret")
            tab.get_by_role("button", name="Use key").click()
            expect(tab.locator(".word")).to_have_text(OTHER.split())
            stored = "[localStorage.length, sessionStorage.length, document.cookie]"
            assert tab.evaluate(stored) == [0, 1, ""]
            assert "a-secret" not in tab.url
            tab.reload()
            expect(tab.locator(".word")).to_have_text(OTHER.split())
    finally:
        running.stop()


def test_everything_works_by_keyboard(tab, server, expect):
    tab.goto(server.address)
    expect(chip(tab, "eigen")).to_be_checked()

    def press(*keys):
        for key in keys:
            tab.keyboard.press(key)

    focused = "document.activeElement"
    press("Tab")
    tab.keyboard.type(OTHER)
    expect(tab.locator(".label")).to_be_visible()
    press("Tab", "Tab", "Space")  # to the second model
    assert chip(tab, "attentive").is_checked()
    expect(tab.locator(".card")).to_have_count(2)
    press("Space")
    expect(tab.locator(".card")).to_have_count(1)
    stops = []
    while not tab.evaluate(f"{focused}.classList.contains('word')"):
        press("Tab")
        stops.append(tab.evaluate(f"{focused}.id || {focused}.className"))
        assert tab.evaluate(f"{focused}.matches(':focus-visible')")
        assert len(stops) < 20
    for stop in ("example", "copy-link", "download", "threshold", "heads", "copy-svg"):
        assert stop in stops
    press("ArrowRight")
    expect(tab.locator(".details")).to_contain_text("film weighs")


@pytest.mark.parametrize("kind", ["eigen", "pairs", "reviews"])
def test_a_narrow_window_needs_no_sideways_scrolling(browser, server, kind, expect):
    long = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerk" * 2
    width = "document.documentElement.scrollWidth"
    with tab_of(browser, [REFUSED], viewport=NARROW) as tab:
        tab.goto(server.link("", kind))
        expect(tab.locator(".beginning button").first).to_be_visible()
        assert tab.evaluate(width) <= 360
        text = f"the film was good. it was {long}. {OTHER}"
        tab.evaluate(
            "([text, model, gone]) => { location.hash = new URLSearchParams("
            "[['text', text], ['pair', text], ['model', model], ['model', gone]]); }",
            [text, kind, long],
        )
        expect(tab.locator(".label")).to_be_visible()
        tab.locator(".word").last.click()
        assert tab.evaluate(width) <= 360
        tab.locator("#text").fill("film " * 601)
        expect(tab.get_by_role("alert")).to_be_visible()
        assert tab.evaluate(width) <= 360


def test_markup_is_shown_as_text(browser, models, expect):
    markup = "<img src=x onerror=alert(1)>"
    text = f"{markup} <script>alert(2)</script> & &amp; \u202e"
    named = copy(models["eigen"])  # no word has all of a tag in it, but a name may
    named.name = markup
    running = Running([named, models["attentive"]])
    try:
        with tab_of(browser) as tab:
            tab.goto(running.address)
            chip(tab, "attentive").check()
            field(tab, "Text").fill(text)
            nodes = named.explain(text).words[0].nodes
            words = tab.locator(".card").first.locator(".word")
            expect(words).to_have_text(nodes)
            words.nth(2).hover()
            expect(tab.locator(".details").first).to_contain_text(f"{nodes[2]} weighs")
            expect(tab.locator("#spoken")).to_contain_text(markup)
            assert tab.locator(".card h2").first.text_content() == markup
            assert tab.locator("main img, main script").count() == 0
            tab.goto("about:blank")
            tab.goto(running.link(text, "<b>x</b>"))
            told = tab.locator("#told")
            expect(told).to_have_text("This server has no model <b>x</b>.")
    finally:
        running.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser, server, scheme, expect):
    with tab_of(browser, [REFUSED], viewport=WIDE, color_scheme=scheme) as tab:
        tab.goto(server.address)
        expect(tab.locator(".beginning")).to_be_visible()
        assert faults_of(tab) == []
        field(tab, "Text").fill(TEXT)
        expect(tab.locator(".card")).to_have_count(1)
        stands_still(tab)
        assert faults_of(tab) == []
        chip(tab, "highest").check()
        expect(tab.locator(".card")).to_have_count(2)
        stands_still(tab)
        assert faults_of(tab) == []
        field(tab, "Text").fill("film " * 601)
        expect(tab.get_by_role("alert")).to_be_visible()
        stands_still(tab)
        assert faults_of(tab) == []
