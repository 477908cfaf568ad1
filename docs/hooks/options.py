"""The options of components in the reference, made from their constructors."""

import re
from typing import Any

MARK = re.compile(r"<!-- options of (\w+) -->")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put a table for each component in the place of a mark."""
    return MARK.sub(lambda mark: options(mark[1]), markdown)


def options(kind: str) -> str:
    """Return a section for each component of a kind: encoders, aggregators."""
    from perron.layers import ENCODERS
    from perron.pooling import AGGREGATORS
    from perron.registry import settings_from

    registries: dict[str, Any] = {"encoders": ENCODERS, "aggregators": AGGREGATORS}
    found = []
    for name, component in registries[kind].items():
        fields = settings_from(component).model_fields
        rows = [
            f"| `{key}` | `{_plain(field.default)}` | {field.description} |"
            for key, field in fields.items()
            if key != "name"
        ]
        found.append(f"### `{name}`\n\nSettings of `{component.__name__}`.")
        if rows:
            found.append("\n".join(["| option | default | |", "|---|---|---|", *rows]))
    return "\n\n".join(found)


def _plain(default: Any) -> str:
    """Return a default as it stands in TOML."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return str(list(default))
    if isinstance(default, str):
        return f'"{default}"'
    return "" if default is None else str(default)
