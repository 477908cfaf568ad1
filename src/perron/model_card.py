"""The page about a model that is saved with it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import EvalResult, ModelCardData

from perron.models import ModelConfig
from perron.models.config import HuggingFaceSettings
from perron.tables import markdown_table


class Score(NamedTuple):
    """The value of a metric on a part of some data.

    Attributes:
        data: Name of the data.
        part: Train, dev or test.
        metric: Name of the metric.
        title: Name of the metric for people.
        value: Its value.
        text: The value as it is shown.
    """

    data: str
    part: str
    metric: str
    title: str
    value: float
    text: str


def model_card(
    config: ModelConfig,
    facts: Mapping[str, object] | None = None,
    scores: Sequence[Score] = (),
) -> str:
    """Return Markdown with the front matter that model hubs read.

    Args:
        config: of the model.
        facts: more rows for its table.
        scores: for the table, and for the hub's own list of results.
    """
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
    results = {f"{score.part} {score.title}": score.text for score in scores}
    title = f"A {settings.kind} classifier with {settings.aggregator.name} pooling"
    return "\n".join(
        [
            "---",
            _front_matter(config, title, scores),
            "---",
            "",
            f"# {title}",
            "",
            markdown_table(["", ""], _rows(parts | dict(facts or {}) | results)),
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


def _front_matter(config: ModelConfig, title: str, scores: Sequence[Score]) -> str:
    settings = config.settings
    tags = ["perron", settings.aggregator.name]
    data = ModelCardData(
        library_name="perron", pipeline_tag="text-classification", tags=tags
    )
    encoder = settings.encoder
    if isinstance(encoder, HuggingFaceSettings) and not Path(encoder.model).exists():
        data.base_model = encoder.model
    if scores:
        data.model_name = title
        data.eval_results = [
            EvalResult(
                task_type="text-classification",
                dataset_type=score.data,
                dataset_name=score.data,
                dataset_split=score.part,
                metric_type=score.metric,
                metric_name=score.title,
                metric_value=round(score.value, 4),
            )
            for score in scores
        ]
    return str(data.to_yaml())


_PAIR = 'model.predict(["..."], ["..."])'


def _rows(facts: Mapping[str, object]) -> list[list[str]]:
    """Return a row for each fact, on one line: a label may have line breaks."""
    return [[" ".join(str(part).split()) for part in fact] for fact in facts.items()]
