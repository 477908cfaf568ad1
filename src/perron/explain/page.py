"""A page to look at word graphs in: one file, no network."""

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from perron.explain.records import Explanation

# The modules of the page, each after those that it imports.
_MODULES = (
    "elements",
    "numbers",
    "arcs",
    "details",
    "words",
    "threshold",
    "picture",
    "graph",
    "record",
    "page",
)
_IMPORT = re.compile(r"^import\s[^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<noscript><p>This page draws with JavaScript, which is switched off here.</p></noscript>
</main>
<script type="application/json" id="records">{records}</script>
<script type="module">
{script}</script>
</body>
</html>
"""


def page(rows: Sequence[Sequence[Explanation]], title: str = "Word graph") -> str:
    """Return a page with a row for each text and in it a record for each model."""
    inner = ",".join(
        "[" + ",".join(record.to_json() for record in row) + "]" for row in rows
    )
    return _PAGE.format(
        title=escape(title),
        style=_read("graph.css") + _read("page.css"),
        # "</script>" in a text would end the script.
        records="[" + inner.replace("<", "\\u003c") + "]",
        script=_script(),
    )


def framed(record: Explanation) -> str:
    """Return the page in a frame, for notebooks: its style does not touch theirs."""
    lines = 1 + max((len(graph.nodes) for graph in record.words), default=0) // 12
    height = min(900, 420 + 75 * lines * len(record.words[:2]))
    return (
        f'<iframe srcdoc="{escape(page([[record]]))}" title="Word graph" '
        'sandbox="allow-scripts allow-downloads" style="width: 100%; '
        f'height: {height}px; border: 0; resize: vertical"></iframe>'
    )


@cache
def _script() -> str:
    """Join the modules into one, as a page in one file cannot import another."""
    joined = "".join(_read(f"{name}.js") for name in _MODULES)
    return _EXPORT.sub("", _IMPORT.sub("", joined))


@cache
def _read(name: str) -> str:
    return (files("perron.explain") / "static" / name).read_text(encoding="utf-8")
