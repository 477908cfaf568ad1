"""Classifiers of texts, of documents and of pairs of texts."""

from perron.models.classifiers import (
    Classified,
    Classifier,
    DocumentClassifier,
    PairClassifier,
    TextClassifier,
    build_model,
    load_model,
)
from perron.models.config import ModelConfig, ModelSettings

__all__ = [
    "Classified",
    "Classifier",
    "DocumentClassifier",
    "ModelConfig",
    "ModelSettings",
    "PairClassifier",
    "TextClassifier",
    "build_model",
    "load_model",
]
