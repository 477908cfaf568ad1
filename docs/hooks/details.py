"""Tables inside <details> are Markdown too, as they are on GitHub."""


def on_page_markdown(markdown: str, **_: object) -> str:
    """Mark the elements whose content is to be read as Markdown."""
    return markdown.replace("<details>", '<details markdown="1">')
