"""Estimators of scikit-learn that take texts."""

from perron.integrations.scikit_learn.classifier import (
    CentralityClassifier,
    CentralityVectorizer,
)

__all__ = ["CentralityClassifier", "CentralityVectorizer"]
