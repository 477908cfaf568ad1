"""Chromium for browser tests, driven by Playwright."""

import shutil
from contextlib import contextmanager

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LOCAL = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:")


@pytest.fixture(scope="module")
def browser():
    """Return a browser for the tests of a module, or skip them."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install playwright"
    )
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@contextmanager
def quiet_tab(browser, expected=(), **settings):
    """Open a tab that may not log, open dialogs, or access the network.

    Args:
        browser: Browser.
        expected: Parts of console messages that are allowed.
        settings: Settings of the browser context.
    """
    context = browser.new_context(**settings)
    context.set_default_timeout(10_000)
    tab = context.new_page()
    problems = []

    def report(problem):
        if not any(part in problem for part in expected):
            problems.append(problem)

    def on_dialog(dialog):
        report("a dialog")
        dialog.dismiss()

    def on_request(request):
        if not request.url.startswith(LOCAL):
            report(f"a request to {request.url}")

    tab.on("console", lambda message: report(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: report(str(error)))
    tab.on("dialog", on_dialog)
    tab.on("request", on_request)
    try:
        yield tab
    finally:
        context.close()
    assert problems == []


def count_arcs(tab, kind="all"):
    """Return the number of arcs of a kind."""
    paths = tab.locator(f".arcs .{kind} .arc").evaluate_all(
        "paths => paths.map((path) => path.getAttribute('d'))"
    )
    return sum(path.count("M") for path in paths)


def accessibility_problems(tab):
    """Return serious problems that axe-core finds, and texts with low contrast.

    The contrast rule of axe-core does not support color-mix.
    """
    from axe_core_python.sync_playwright import Axe

    serious = [
        (violation["id"], [node["target"] for node in violation["nodes"]])
        for violation in Axe().run(tab)["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    return serious + tab.evaluate(_LOW_CONTRAST)


# Returns the texts with a contrast ratio below 4.5, with the ratio.
_LOW_CONTRAST = """() => {
  const paper = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const over = (...colors) => {
    for (const color of colors) {
      paper.fillStyle = color;
      paper.fillRect(0, 0, 1, 1);
    }
    const light = [...paper.getImageData(0, 0, 1, 1).data].map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  };
  const contrast = (foreground, backgrounds) => {
    const [below, above] = [over(...backgrounds), over(...backgrounds, foreground)];
    return (Math.max(below, above) + 0.05) / (Math.min(below, above) + 0.05);
  };
  const low = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].filter((node) => node.nodeType === 3);
    const text = own.map((node) => node.data).join("").trim() || element.placeholder;
    if (!text || !element.checkVisibility() || element.matches(":disabled")) continue;
    const plain = [], barred = [];
    for (let around = element; around; around = around.parentElement) {
      const {backgroundColor, backgroundImage} = getComputedStyle(around);
      const bars = backgroundImage.match(/(color|rgba?)\\([^)]*\\)/g) ?? [];
      plain.unshift(backgroundColor);
      barred.unshift(backgroundColor, ...bars.slice(0, 1));
    }
    const pseudo = element.value === "" ? "::placeholder" : null;
    const {color} = getComputedStyle(element, pseudo);
    for (const backgrounds of [plain, barred]) {
      const ratio = contrast(color, backgrounds);
      if (ratio < 4.5) low.push([text, ratio]);
    }
  }
  return low;
}"""
