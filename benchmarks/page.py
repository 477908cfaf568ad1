"""How long until a page of word graphs is drawn?

A page in one file (`perron graph --format html`) with a random graph of 20, 100 or 500
words is opened in headless chromium. Measured inside it, from the start of navigation
to the second frame after the first arcs are there: reading the file, parsing its
numbers, laying out words, drawing arcs. Then the slider goes to its end, at which up to
20 000 arcs are drawn, until the second frame after that. The median of several turns.

    python benchmarks/page.py [--json FILE] [--quick]
"""

import shutil
import statistics
import tempfile
from pathlib import Path

import torch
from playwright.sync_api import Browser, sync_playwright

import perron
from perron.explain import Explanation, Graph, Head, Source
from perron.explain.views import page
from timing import Report

WORDS = ["the", "film", "was", "a", "fine", "story", "without", "an", "ending"]

# Resolves after the second frame, when the first is on the screen.
FRAMES = """() => new Promise((done) => requestAnimationFrame(
    () => requestAnimationFrame(() => done(performance.now()))))"""

# Promises the time of the second frame after arcs have come into the page.
WATCH = f"""window.drawn = new Promise((done) => {{
    new MutationObserver((_, watcher) => {{
        if (!document.querySelector(".arcs path")) return;
        watcher.disconnect();
        ({FRAMES})().then(done);
    }}).observe(document, {{ childList: true, subtree: true }});
}});"""

MORE = f"""() => {{
    const slider = document.querySelector(".threshold");
    const begin = performance.now();
    slider.value = slider.max;
    slider.dispatchEvent(new Event("input"));
    return ({FRAMES})().then((end) => end - begin);
}}"""


def random_record(count: int) -> Explanation:
    """Return a record of so many words with a random graph."""
    torch.manual_seed(0)
    edges = torch.randn(count, count).softmax(0)
    weights = perron.stationary(edges).tolist()
    nodes = [WORDS[place % len(WORDS)] for place in range(count)]
    places = [(0, len(node)) for node in nodes]
    head = Head(weights, [[float(f"{x:.7g}") for x in row] for row in edges.tolist()])
    return Explanation(
        Source("random", "text", "none", "centrality"),
        " ".join(nodes),
        None,
        "yes",
        {"yes": 0.7, "no": 0.3},
        [Graph(nodes, places, weights, [head])],
    )


def measure(browser: Browser, file: Path, turns: int) -> tuple[float, float]:
    """Return milliseconds until it is drawn, and until all its edges are."""
    first, more = [], []
    for _ in range(turns):
        with browser.new_context() as context:
            tab = context.new_page()
            tab.add_init_script(WATCH)
            tab.goto(file.as_uri())
            first.append(tab.evaluate("() => window.drawn"))
            more.append(tab.evaluate(MORE))
    return statistics.median(first), statistics.median(more)


def main() -> None:
    """Measure and print."""
    report = Report(__doc__, budget=60)
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-background-networking"],
        ) as browser,
    ):
        for count in (20, 100, 500):
            file = Path(folder, f"{count}.html")
            file.write_text(page([[random_record(count)]]))
            drawn, all_drawn = measure(browser, file, 2 if report.quick else 9)
            rows.append(
                {
                    "words": count,
                    "kilobytes": file.stat().st_size / 1000,
                    "milliseconds": drawn,
                    "all edges": all_drawn,
                }
            )
    columns = {"words": "", "kilobytes": ".0f", "milliseconds": ".0f"}
    report.add("a page in chromium", rows, columns | {"all edges": ".0f"})
    last = rows[-1]["milliseconds"]
    report.finish([f"500 words are drawn in {last:.0f} ms (asked: 1000)"])


if __name__ == "__main__":
    main()
