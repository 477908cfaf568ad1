"""Figures of papers/, at the same path on the site as in the repository."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FOLDER = "papers"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the figures to the files of the site."""
    root = Path(config.config_file_path).parent
    for path in sorted((root / FOLDER).rglob("*.svg")):
        uri = path.relative_to(root).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Rewrite links from docs/ to papers/, which is next to the pages on the site."""
    return markdown.replace(f"](../{FOLDER}/", f"]({FOLDER}/")
