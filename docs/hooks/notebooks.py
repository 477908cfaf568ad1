"""Notebooks as pages, with their cells and stored outputs."""

from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


class NotebookPage(File):
    """A page generated from a notebook. Links to the notebook lead to the page."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace each notebook with a page."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            notebook = nbformat.read(Path(file.abs_src_path), as_version=4)
            page = NotebookPage.generated(
                config, file.src_uri, content=to_markdown(notebook)
            )
            page.dest_uri = page.url = file.src_uri.replace(".ipynb", ".html")
            files.remove(file)
            files.append(page)
    return files


def to_markdown(notebook: Any) -> str:
    """Convert a notebook to Markdown."""
    return "\n\n".join(block for cell in notebook.cells for block in cell_blocks(cell))


def cell_blocks(cell: Any) -> list[str]:
    """Return the Markdown of a cell and of each of its outputs."""
    if cell.cell_type == "markdown":
        return [cell.source]
    return [_fenced(cell.source, "python"), *map(output_block, cell.outputs)]


def output_block(output: Any) -> str:
    """Return an output in its richest available format."""
    if output.output_type == "stream":
        return _fenced(output.text, "text")
    data = output.get("data", {})
    if "text/html" in data:
        # A blank line would end the HTML element.
        lines = filter(str.strip, data["text/html"].splitlines())
        return f'<div class="output">{"&#10;".join(lines)}</div>'
    if "image/png" in data:
        image = data["image/png"].replace("\n", "")
        return f'<img alt="" src="data:image/png;base64,{image}">'
    return _fenced(data.get("text/plain", ""), "text")


def _fenced(code: str, language: str) -> str:
    return f"```{language}\n{code.rstrip()}\n```"
