import re
from pathlib import Path

import perron

README = Path(__file__).parents[1] / "README.md"


def documented_names() -> set[str]:
    """Names in the first column of the README's table of the public interface."""
    section = README.read_text().split("## Public interface")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)", row.split("|")[1])}


def test_all_is_what_the_readme_documents():
    assert documented_names() == set(perron.__all__)


def test_every_name_is_there_and_documented():
    for name in perron.__all__:
        assert getattr(perron, name).__doc__
