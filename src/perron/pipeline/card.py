"""The page about a model that is saved with it."""

from collections.abc import Mapping

from perron.models import ModelConfig


def model_card(config: ModelConfig, facts: Mapping[str, object]) -> str:
    """Return Markdown with the front matter that model hubs read."""
    settings = config.settings
    parts = {
        "kind": settings.kind,
        "encoder": settings.encoder.name,
        "aggregator": settings.aggregator.name,
        "classes": ", ".join(config.labels),
        "vocabulary": f"{config.vocabulary} words",
        "cut at": f"{config.max_words} words"
        + (
            f", {config.max_sentences} sentences" if settings.kind == "document" else ""
        ),
    }
    return "\n".join(
        [
            "---",
            "library_name: perron",
            "pipeline_tag: text-classification",
            f"tags: [perron, {settings.aggregator.name}]",
            "---",
            "",
            f"# A {settings.kind} classifier with {settings.aggregator.name} pooling",
            "",
            *_table(parts | dict(facts)),
            "",
            "```python",
            "import perron",
            "",
            'model = perron.load("this folder")',
            'model.predict(["..."])' if settings.kind != "pair" else _PAIR,
            "```",
            "",
        ]
    )


_PAIR = 'model.predict(["..."], ["..."])'


def _table(rows: Mapping[str, object]) -> list[str]:
    return [
        "| | |",
        "|---|---|",
        *(f"| {_cell(key)} | {_cell(value)} |" for key, value in rows.items()),
    ]


def _cell(value: object) -> str:
    """Keep a bar or a line break, as a label may have, from ending the cell."""
    return " ".join(str(value).split()).replace("|", "\\|")
