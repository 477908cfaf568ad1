"""Markdown inside <details> elements, as on GitHub."""


def on_page_markdown(markdown: str, **_: object) -> str:
    """Enable Markdown in the elements."""
    return markdown.replace("<details>", '<details markdown="1">')
