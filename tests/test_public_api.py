import re
from pathlib import Path

import perron

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "index.md"


def documented_names() -> set[str]:
    """Return the names in the first column of the table of the public API."""
    rows = [
        line for line in REFERENCE.read_text().splitlines() if line.startswith("| `")
    ]
    return {name for row in rows for name in re.findall(r"`(\w+)", row.split("|")[1])}


def test_exactly_the_exported_names_are_in_the_reference():
    assert documented_names() == set(perron.__all__)


def test_every_exported_name_has_a_docstring():
    for name in perron.__all__:
        assert getattr(perron, name).__doc__
