"""The right classifier for a configuration."""

from pathlib import Path

from perron.models.base import Classifier
from perron.models.document import DocumentClassifier
from perron.models.pair import PairClassifier
from perron.models.saving import read_config
from perron.models.settings import ModelConfig
from perron.models.text import TextClassifier

CLASSIFIERS: dict[str, type[Classifier]] = {
    "text": TextClassifier,
    "document": DocumentClassifier,
    "pair": PairClassifier,
}


def build_model(config: ModelConfig) -> Classifier:
    """Make a classifier with random weights."""
    return CLASSIFIERS[config.settings.kind](config)


def load_model(folder: str | Path) -> Classifier:
    """Load the classifier that was saved in a folder, whichever it is."""
    kind = read_config(Path(folder)).settings.kind
    return CLASSIFIERS[kind].from_pretrained(folder)
