"""Create the images of README and docs from the models trained by `make demo`.

    python docs/make_pictures.py

Starts `perron serve`, takes screenshots with Chromium, and writes docs/images/.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, sync_playwright

import perron

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
RUNS = ROOT / "runs" / "demo-runs"
MODELS = ["centrality-point0-seed0", "self-attention-point0-seed0"]
TEXT = "A gorgeous, witty, seductive movie, but it's too long by half."


@contextmanager
def serve(folders: list[Path]) -> Iterator[str]:
    """Serve models inside a `with` block and yield the address."""
    command = [sys.executable, "-m", "perron", "serve", *map(str, folders)]
    server = subprocess.Popen(
        [*command, "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if match := re.search(r"http://\S+", line):
                yield match.group()
                return
        raise SystemExit("error: the server did not start.")
    finally:
        server.terminate()
        server.wait()


def open_viewer(
    browser: Browser, address: str, width: int, scheme: str = "light", **fields: object
) -> Page:
    """Open the viewer at a permalink and wait until its graphs are drawn."""
    tab = browser.new_page(
        viewport={"width": width, "height": 700},
        color_scheme=scheme,
        device_scale_factor=2,
    )
    tab.goto(f"{address}/#{urlencode(fields, doseq=True)}")
    tab.locator(".arcs path").first.wait_for()
    return tab


def main() -> None:
    """Create all images."""
    folders = [RUNS / name for name in MODELS]
    if not all(folder.exists() for folder in folders):
        raise SystemExit(f"error: {RUNS} contains no models. Run make demo first.")
    IMAGES.mkdir(exist_ok=True)
    record = perron.load(folders[0]).explain(TEXT)
    (IMAGES / "graph.svg").write_text(record.to_svg(), encoding="utf-8")
    chromium = shutil.which("chromium")
    with (
        serve(folders) as address,
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-background-networking"],
        ) as browser,
    ):
        comparison = open_viewer(browser, address, 1200, text=TEXT, model=MODELS)
        comparison.get_by_role("option", name="witty").first.hover()
        comparison.screenshot(path=IMAGES / "viewer.png", full_page=True)
        phone = open_viewer(browser, address, 390, "dark", text=TEXT, model=MODELS[:1])
        phone.screenshot(path=IMAGES / "viewer-phone.png", full_page=True)
        page = browser.new_page(
            viewport={"width": 900, "height": 400}, device_scale_factor=2
        )
        page.set_content(record.to_html())
        page.locator(".arcs path").first.wait_for()
        page.get_by_role("option", name="seductive").hover()
        page.screenshot(path=IMAGES / "graph-page.png", full_page=True)


if __name__ == "__main__":
    main()
