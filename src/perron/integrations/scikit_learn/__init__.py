"""Estimators of scikit-learn that take texts."""

from perron.integrations.scikit_learn.classifier import CentralityClassifier
from perron.integrations.scikit_learn.vectorizer import CentralityVectorizer

__all__ = ["CentralityClassifier", "CentralityVectorizer"]
