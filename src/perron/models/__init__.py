"""Classifiers for texts, documents and pairs of texts."""

from perron.models.classifiers import (
    Classifier,
    ClassifierOutput,
    DocumentClassifier,
    PairClassifier,
    TextClassifier,
    build_model,
    load_model,
)
from perron.models.config import ModelConfig, ModelSettings

__all__ = [
    "Classifier",
    "ClassifierOutput",
    "DocumentClassifier",
    "ModelConfig",
    "ModelSettings",
    "PairClassifier",
    "TextClassifier",
    "build_model",
    "load_model",
]
