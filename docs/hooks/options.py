"""Tables of component options, generated from the constructors."""

import re
from typing import Any

PLACEHOLDER = re.compile(r"<!-- options of (\w+) -->")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace each placeholder with the tables of one kind of component."""
    return PLACEHOLDER.sub(lambda match: option_tables(match[1]), markdown)


def option_tables(kind: str) -> str:
    """Return one section per component.

    Args:
        kind: Kind of component: ``encoders`` or ``aggregators``.
    """
    from perron.layers import ENCODERS
    from perron.pooling import AGGREGATORS
    from perron.registry import settings_from

    registries: dict[str, Any] = {"encoders": ENCODERS, "aggregators": AGGREGATORS}
    blocks = []
    for name, component in registries[kind].items():
        fields = settings_from(component).model_fields
        rows = [
            f"| `{key}` | `{_toml(field.default)}` | {field.description} |"
            for key, field in fields.items()
            if key != "name"
        ]
        blocks.append(f"### `{name}`\n\nSettings of `{component.__name__}`.")
        if rows:
            blocks.append("\n".join(["| option | default | |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks)


def _toml(default: Any) -> str:
    """Return a default value as TOML."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return str(list(default))
    if isinstance(default, str):
        return f'"{default}"'
    return "" if default is None else str(default)
