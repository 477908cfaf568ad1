"""Classifiers of texts, of documents and of pairs of texts."""

from perron.models.base import Classified, Classifier
from perron.models.build import build_model, load_model
from perron.models.document import DocumentClassifier
from perron.models.pair import PairClassifier
from perron.models.settings import ModelConfig, ModelSettings
from perron.models.text import TextClassifier

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
