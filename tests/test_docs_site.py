"""The documentation site is complete and does not load anything from other hosts."""

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

# Packages that are only used inside Perron.
INTERNAL = {"perron.text.formats"}

# Hosts that the scripts of Material contact only on pages with a diagram or a link to a
# repository, or in old browsers, and hosts in messages for developers.
UNUSED_HOSTS = (
    r"https://(unpkg\.com/(mermaid|resize-observer)|api\.github\.com|\$\{e\}/api/v4"
    r"|bit\.ly)|http://(lunrjs\.com|tartarus\.org|www\.w3\.org)"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder of the site and the log of the build."""
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
    """All pages are in the navigation, and all links and references are valid."""
    assert "Documentation built" in built[1]
    assert "WARNING" not in built[1], built[1]


def public_names():
    """Yield every exported name with its package."""
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


def is_documented(inventory, package, name):
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
    assert [pair for pair in names if not is_documented(inventory, *pair)] == []


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
    """Parser that collects the addresses a page loads, without those of links."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "srcset", "data", "poster", "action", "style") or (
                name == "href" and tag != "a"
            ):
                self.addresses.append(value or "")


def test_no_page_loads_anything_from_another_host(site):
    other_host = re.compile(r"(?:^|[\s(,'\"])(?:https?:)?//[^\s]+")
    external = []
    for path in site.rglob("*.html"):
        page = Addresses()
        page.feed(path.read_text(encoding="utf-8"))
        assert page.addresses
        external += [
            (path.name, value) for value in page.addresses if other_host.search(value)
        ]
    for path in site.rglob("*.css"):
        style = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        loaded = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\s)]+)", style)
        external += [(path.name, value) for value in loaded]
    assert external == []


def test_scripts_use_other_hosts_only_for_unused_features(site):
    scripts = [*site.glob("assets/*.js"), *site.glob("assets/javascripts/**/*.min.js")]
    scripts = [path for path in scripts if "lunr" not in path.parts]  # other languages
    assert len(scripts) == 3
    for path in scripts:
        code = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
        hosts = re.findall(r"https?://[^\s\"'`)]+", code)
        assert [each for each in hosts if not re.match(UNUSED_HOSTS, each)] == []
    pages = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert 'class="mermaid"' not in pages
    assert 'data-md-component="source"' not in pages


@pytest.mark.browser
def test_search_works_when_the_site_is_opened_from_disk(site, browser):
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
            if (
                path.name != "404.html"
            ):  # its links are relative to the root of a server
                tab.goto(path.as_uri())
                width = tab.evaluate("document.documentElement.scrollWidth")
                assert width <= 390, path
