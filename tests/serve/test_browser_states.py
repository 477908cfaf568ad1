"""The viewer in a real browser: errors, narrow windows and accessibility."""

import re
from copy import copy

import pytest
from perron_tests.chromium import accessibility_problems
from perron_tests.viewer import (
    HTTP_ERROR,
    NARROW,
    OTHER,
    TEXT,
    WIDE,
    ServerThread,
    chip,
    field,
    open_tab,
    wait_until_idle,
)

pytestmark = pytest.mark.browser


def test_long_texts_are_rejected_or_truncated(browser, server, expect):
    with open_tab(browser, [HTTP_ERROR]) as tab:
        tab.goto(server.url)
        field(tab, "Text").fill("film " * 601)
        expect(tab.get_by_role("alert")).to_contain_text("600 words")
        expect(tab.locator("#cards > *")).to_have_count(0)
        field(tab, "Text").fill(OTHER)
        expect(tab.locator(".word")).to_have_text(OTHER.split())
        expect(tab.locator("#notice")).to_be_empty()
    with open_tab(browser) as tab:
        tab.goto(server.link("film " * 11, "highest"))
        expect(tab.locator(".truncated")).to_contain_text("only the first 10 words")


def test_a_request_can_be_retried_after_the_server_restarts(browser, models, expect):
    running = ServerThread([models["eigen"]])
    try:
        with open_tab(browser, [HTTP_ERROR]) as tab:
            tab.goto(running.link(OTHER))
            expect(tab.locator(".word")).to_have_count(4)
            running.stop()
            field(tab, "Text").fill(TEXT)
            alert = tab.get_by_role("alert")
            expect(alert).to_contain_text("The server is not responding")
            tab.get_by_role("button", name="Try again").click()
            expect(alert).to_contain_text("Your text is still here")
            running.start()
            tab.get_by_role("button", name="Try again").click()
            expect(tab.locator(".label")).to_be_visible()
            assert tab.locator(".word").first.text_content() == "It"
            assert tab.evaluate("document.activeElement.id") == "results"
    finally:
        running.stop()


def test_requests_to_a_busy_server_are_retried_automatically(browser, server, expect):
    service = server.app.state.service
    with open_tab(browser, [HTTP_ERROR]) as tab:
        tab.goto(server.url)
        expect(chip(tab, "eigen")).to_be_checked()
        service.stopping = True
        try:
            field(tab, "Text").fill(OTHER)
            progress = tab.locator("#progress")
            expect(progress).to_have_text(re.compile(r"busy\. .* 1 s \(1 of 3\)"))
        finally:
            service.stopping = False
        expect(tab.locator(".word")).to_have_text(OTHER.split())
        expect(progress).to_be_empty()


def test_the_key_is_requested_and_stored_for_the_session(browser, models, expect):
    running = ServerThread([models["eigen"]], api_key="a-secret")
    try:
        with open_tab(browser, [HTTP_ERROR]) as tab:
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


def test_the_viewer_can_be_used_with_the_keyboard_alone(tab, server, expect):
    tab.goto(server.url)
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
    expect(tab.locator(".details")).to_contain_text(re.compile("film has .* %"))


@pytest.mark.parametrize("kind", ["eigen", "pairs", "reviews"])
def test_narrow_windows_do_not_scroll_horizontally(browser, server, kind, expect):
    long = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerk" * 2
    width = "document.documentElement.scrollWidth"
    with open_tab(browser, [HTTP_ERROR], viewport=NARROW) as tab:
        tab.goto(server.link("", kind))
        expect(tab.locator(".empty-state button").first).to_be_visible()
        assert tab.evaluate(width) <= 360
        text = f"the film was good. it was {long}. {OTHER}"
        tab.evaluate(
            "([text, model, other]) => { location.hash = new URLSearchParams("
            "[['text', text], ['pair', text], ['model', model], ['model', other]]); }",
            [text, kind, long],
        )
        expect(tab.locator(".label")).to_be_visible()
        tab.locator(".word").last.click()
        assert tab.evaluate(width) <= 360
        tab.locator("#text").fill("film " * 601)
        expect(tab.get_by_role("alert")).to_be_visible()
        assert tab.evaluate(width) <= 360


def test_texts_and_names_are_not_interpreted_as_markup(browser, models, expect):
    markup = "<img src=x onerror=alert(1)>"
    text = f"{markup} <script>alert(2)</script> & &amp; \u202e"
    named = copy(models["eigen"])  # unlike a word, a name may contain an entire tag
    named.name = markup
    running = ServerThread([named, models["attentive"]])
    try:
        with open_tab(browser) as tab:
            tab.goto(running.url)
            chip(tab, "attentive").check()
            field(tab, "Text").fill(text)
            nodes = named.explain(text).words[0].nodes
            words = tab.locator(".card").first.locator(".word")
            expect(words).to_have_text(nodes)
            words.nth(2).hover()
            expect(tab.locator(".details").first).to_contain_text(f"{nodes[2]} has ")
            expect(tab.locator("#announcement")).to_contain_text(markup)
            assert tab.locator(".card h2").first.text_content() == markup
            assert tab.locator("main img, main script").count() == 0
            tab.goto("about:blank")
            tab.goto(running.link(text, "<b>x</b>"))
            status = tab.locator("#status")
            expect(status).to_have_text("Model not found: <b>x</b>.")
    finally:
        running.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_viewer_is_accessible(browser, server, scheme, expect):
    with open_tab(browser, [HTTP_ERROR], viewport=WIDE, color_scheme=scheme) as tab:
        tab.goto(server.url)
        expect(tab.locator(".empty-state")).to_be_visible()
        assert accessibility_problems(tab) == []
        field(tab, "Text").fill(TEXT)
        expect(tab.locator(".card")).to_have_count(1)
        wait_until_idle(tab)
        assert accessibility_problems(tab) == []
        chip(tab, "highest").check()
        expect(tab.locator(".card")).to_have_count(2)
        wait_until_idle(tab)
        assert accessibility_problems(tab) == []
        field(tab, "Text").fill("film " * 601)
        expect(tab.get_by_role("alert")).to_be_visible()
        wait_until_idle(tab)
        assert accessibility_problems(tab) == []
