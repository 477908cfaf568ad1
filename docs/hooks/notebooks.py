"""Notebooks become pages like all others: cells as they are, outputs as stored."""

from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


class NotebookPage(File):
    """A page whose source is a notebook, so that links to the notebook lead to it."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put a page in the place of each notebook."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            notebook = nbformat.read(Path(file.abs_src_path), as_version=4)
            page = NotebookPage.generated(config, file.src_uri, content=text(notebook))
            page.dest_uri = page.url = file.src_uri.replace(".ipynb", ".html")
            files.remove(file)
            files.append(page)
    return files


def text(notebook: Any) -> str:
    """Return a notebook as Markdown."""
    return "\n\n".join(part for cell in notebook.cells for part in parts(cell))


def parts(cell: Any) -> list[str]:
    """Return a cell, and each of its outputs."""
    if cell.cell_type == "markdown":
        return [cell.source]
    return [_fenced(cell.source, "python"), *map(shown, cell.outputs)]


def shown(output: Any) -> str:
    """Return an output in the richest form that it has."""
    if output.output_type == "stream":
        return _fenced(output.text, "text")
    data = output.get("data", {})
    if "text/html" in data:
        # Lines that are blank would end the element.
        lines = filter(str.strip, data["text/html"].splitlines())
        return f'<div class="output">{"&#10;".join(lines)}</div>'
    if "image/png" in data:
        picture = data["image/png"].replace("\n", "")
        return f'<img alt="" src="data:image/png;base64,{picture}">'
    return _fenced(data.get("text/plain", ""), "text")


def _fenced(inside: str, language: str) -> str:
    return f"```{language}\n{inside.rstrip()}\n```"
