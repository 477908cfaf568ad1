"""How long does it take to draw a page of word graphs?

A single-file page (`perron graph --format html`) with a random graph of 20, 100 or 500
words is opened in headless Chromium. The time is measured inside the browser, from the
start of navigation to the second frame after the first arcs appear. It includes reading
the file, parsing the numbers, laying out the words and drawing the arcs. Then the
slider is moved to its end, where up to 20,000 arcs are drawn, and the time to the
second frame after that is measured. Times are medians of several turns.

    python benchmarks/page.py [--json FILE] [--quick]
"""

import shutil
import statistics
import tempfile
from pathlib import Path

import torch
from playwright.sync_api import Browser, sync_playwright

import perron
from perron.explain import Explanation, Graph, Head, ModelInfo
from perron.explain.views import html_page
from timing import Report

WORDS = ["the", "film", "was", "a", "fine", "story", "without", "an", "ending"]

# Resolves after the second frame, when the first is on screen.
FRAMES = """() => new Promise((done) => requestAnimationFrame(
    () => requestAnimationFrame(() => done(performance.now()))))"""

# Resolves to the time of the second frame after arcs appear in the page.
WATCH = f"""window.drawn = new Promise((done) => {{
    new MutationObserver((_, watcher) => {{
        if (!document.querySelector(".arcs path")) return;
        watcher.disconnect();
        ({FRAMES})().then(done);
    }}).observe(document, {{ childList: true, subtree: true }});
}});"""

SHOW_ALL = f"""() => {{
    const slider = document.querySelector(".threshold");
    const begin = performance.now();
    slider.value = slider.max;
    slider.dispatchEvent(new Event("input"));
    return ({FRAMES})().then((end) => end - begin);
}}"""


def random_record(count: int) -> Explanation:
    """Return a record of ``count`` words with a random graph."""
    torch.manual_seed(0)
    edges = torch.randn(count, count).softmax(0)
    weights = perron.stationary_distribution(edges).tolist()
    nodes = [WORDS[index % len(WORDS)] for index in range(count)]
    spans = [(0, len(node)) for node in nodes]
    head = Head(weights, [[float(f"{x:.7g}") for x in row] for row in edges.tolist()])
    return Explanation(
        ModelInfo("random", "text", "none", "centrality"),
        " ".join(nodes),
        None,
        "yes",
        {"yes": 0.7, "no": 0.3},
        [Graph(nodes, spans, weights, [head])],
    )


def measure(browser: Browser, file: Path, turns: int) -> tuple[float, float]:
    """Return the milliseconds to the first drawing and to that of all edges."""
    first, all_edges = [], []
    for _ in range(turns):
        with browser.new_context() as context:
            tab = context.new_page()
            tab.add_init_script(WATCH)
            tab.goto(file.as_uri())
            first.append(tab.evaluate("() => window.drawn"))
            all_edges.append(tab.evaluate(SHOW_ALL))
    return statistics.median(first), statistics.median(all_edges)


def main() -> None:
    """Run the benchmark."""
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
            file.write_text(html_page([[random_record(count)]]))
            first_drawing, all_edges = measure(browser, file, 2 if report.quick else 9)
            rows.append(
                {
                    "words": count,
                    "kilobytes": file.stat().st_size / 1000,
                    "milliseconds": first_drawing,
                    "all edges": all_edges,
                }
            )
    columns = {"words": "", "kilobytes": ".0f", "milliseconds": ".0f"}
    report.add("page in Chromium", rows, columns | {"all edges": ".0f"})
    last = rows[-1]["milliseconds"]
    report.finish([f"500 words are drawn in {last:.0f} ms (target: 1000)"])


if __name__ == "__main__":
    main()
