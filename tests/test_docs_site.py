"""The documentation's site is whole, and asks nothing of other hosts."""

import ast
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from mkdocstrings import Inventory
from perron_tests.chromium import quiet_tab
from perron_tests.pages import ROOT

# Packages whose names are for the rest of Perron only.
INTERNAL = {"perron.text.formats"}

# Hosts that Material's script asks only on pages with a diagram or a link to a
# repository, or in browsers of another age; and that it tells developers of.
ASLEEP = (
    r"https://(unpkg\.com/(mermaid|resize-observer)|api\.github\.com|\$\{e\}/api/v4"
    r"|bit\.ly)|http://(lunrjs\.com|tartarus\.org|www\.w3\.org)"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder of the site, and what was said while it was built."""
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert run.returncode == 0, run.stderr
    return folder, run.stderr


@pytest.fixture(scope="module")
def site(built):
    return built[0]


def test_the_site_builds_without_a_warning(built):
    """Every page is in the navigation, every link and every name leads somewhere."""
    assert "Documentation built" in built[1]
    assert "WARNING" not in built[1], built[1]


def public_names():
    """Return every name that a package exports, with the package."""
    for path in sorted((ROOT / "src" / "perron").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        package = ".".join(parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if (
                isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == "__all__"
            ):
                for name in ast.literal_eval(node.value):
                    yield package, name


def is_in(inventory, package, name):
    if f"perron.{name}" in inventory:
        return True
    return any(
        key.startswith(f"{package}.") and key.endswith(f".{name}") for key in inventory
    )


def test_every_public_name_is_in_the_reference(site):
    with (site / "objects.inv").open("rb") as file:
        inventory = Inventory.parse_sphinx(file)
    names = [
        (package, name) for package, name in public_names() if package not in INTERNAL
    ]
    assert ("perron", "CentralityPool") in names
    assert [pair for pair in names if not is_in(inventory, *pair)] == []


def test_every_command_is_in_the_reference(site):
    from perron.cli.app import app

    page = (site / "reference" / "command_line.html").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f'id="perron-{command.callback.__name__}"' in page
    assert "--max-explained-words" in page


def test_every_page_can_be_reached_from_the_first(site):
    first = (site / "index.html").read_text(encoding="utf-8")
    docs = ROOT / "docs"
    for path in [*docs.rglob("*.md"), *docs.rglob("*.ipynb")]:
        page = path.relative_to(docs).with_suffix(".html")
        assert (site / page).exists()
        assert f'href="{page.as_posix()}"' in first


class Addresses(HTMLParser):
    """Collects what a page makes the browser fetch: all but what links lead to."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "srcset", "data", "poster", "action", "style") or (
                name == "href" and tag != "a"
            ):
                self.found.append(value or "")


def test_no_page_fetches_anything_from_another_host(site):
    elsewhere = re.compile(r"(?:^|[\s(,'\"])(?:https?:)?//[^\s]+")
    faults = []
    for path in site.rglob("*.html"):
        page = Addresses()
        page.feed(path.read_text(encoding="utf-8"))
        assert page.found
        faults += [
            (path.name, value) for value in page.found if elsewhere.search(value)
        ]
    for path in site.rglob("*.css"):
        style = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        fetched = re.findall(
            r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\s)]+)", style
        )
        faults += [(path.name, value) for value in fetched]
    assert faults == []


def test_scripts_name_other_hosts_only_for_what_no_page_has(site):
    scripts = [*site.glob("assets/*.js"), *site.glob("assets/javascripts/**/*.min.js")]
    scripts = [path for path in scripts if "lunr" not in path.parts]  # other languages
    assert len(scripts) == 3
    for path in scripts:
        code = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        named = re.findall(r"https?://[^\s\"'`)]+", code)
        assert [each for each in named if not re.match(ASLEEP, each)] == []
    pages = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert 'class="mermaid"' not in pages
    assert 'data-md-component="source"' not in pages


@pytest.mark.browser
def test_search_finds_a_class_when_the_site_is_opened_from_the_disk(site, browser):
    with quiet_tab(browser, viewport={"width": 1200, "height": 800}) as tab:
        tab.goto((site / "index.html").as_uri())
        field = tab.get_by_role("textbox", name="Search")
        field.click()
        field.press_sequentially("CentralityPool")
        first = tab.locator(".md-search-result__link").first
        first.wait_for()
        assert "CentralityPool" in first.inner_text()
        first.click()
        tab.wait_for_url("**/*.html*")


@pytest.mark.slow
@pytest.mark.browser
def test_no_page_is_wider_than_a_phone(site, browser):
    with quiet_tab(browser, viewport={"width": 390, "height": 800}) as tab:
        for path in site.rglob("*.html"):
            if path.name != "404.html":  # its links begin at the root of a server
                tab.goto(path.as_uri())
                width = tab.evaluate("document.documentElement.scrollWidth")
                assert width <= 390, path
