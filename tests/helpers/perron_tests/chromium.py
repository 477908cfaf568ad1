"""A real browser for tests: Debian's chromium, driven by playwright."""

import shutil
from contextlib import contextmanager

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NEAR = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:")


@pytest.fixture(scope="module")
def browser():
    """Give a browser to the tests of a file, or say why they are skipped."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install playwright"
    )
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: apt-get install chromium, as root, as make test does")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


@contextmanager
def quiet_tab(browser, expected=(), **settings):
    """Give a tab that may not complain, open dialogs, or ask anything of the network.

    Args:
        browser: to open it in.
        expected: parts of what the console may say.
        settings: of the browser's context.
    """
    context = browser.new_context(**settings)
    context.set_default_timeout(10_000)
    tab = context.new_page()
    faults = []

    def noted(fault):
        if not any(part in fault for part in expected):
            faults.append(fault)

    def dismissed(dialog):
        noted("a dialog")
        dialog.dismiss()

    def asked(request):
        if not request.url.startswith(NEAR):
            noted(f"a request to {request.url}")

    tab.on("console", lambda line: noted(f"{line.type}: {line.text}"))
    tab.on("pageerror", lambda error: noted(str(error)))
    tab.on("dialog", dismissed)
    tab.on("request", asked)
    try:
        yield tab
    finally:
        context.close()
    assert faults == []


def arcs(tab, kind="all"):
    """Return how many arcs of a kind are drawn."""
    paths = tab.locator(f".arcs .{kind} .arc").evaluate_all(
        "paths => paths.map((path) => path.getAttribute('d'))"
    )
    return sum(path.count("M") for path in paths)


def faults_of(tab):
    """Return what is serious of the accessibility faults that axe-core finds.

    And texts that are too faint: its own rule for that fails at color-mix.
    """
    from axe_core_python.sync_playwright import Axe

    serious = [
        (fault["id"], [node["target"] for node in fault["nodes"]])
        for fault in Axe().run(tab)["violations"]
        if fault["impact"] in ("serious", "critical")
    ]
    return serious + tab.evaluate(_FAINT)


# Texts with a contrast below 4.5 : 1, and the contrast.
_FAINT = """() => {
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
  const contrast = (ink, grounds) => {
    const [below, above] = [over(...grounds), over(...grounds, ink)];
    return (Math.max(below, above) + 0.05) / (Math.min(below, above) + 0.05);
  };
  const faint = [];
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
    for (const grounds of [plain, barred]) {
      const found = contrast(color, grounds);
      if (found < 4.5) faint.push([text, found]);
    }
  }
  return faint;
}"""
