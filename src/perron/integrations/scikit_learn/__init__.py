"""Estimators of scikit-learn that take texts."""

import sys

from perron.integrations.scikit_learn import classifier
from perron.integrations.scikit_learn.classifier import (
    CentralityClassifier,
    CentralityVectorizer,
)

__all__ = ["CentralityClassifier", "CentralityVectorizer"]

# A pickle names the module of a class. New ones name the public module, so that the
# modules in here can change; those of format version 1 name modules that may be gone.
CentralityClassifier.__module__ = CentralityVectorizer.__module__ = "perron.sklearn"
sys.modules[f"{__name__}.vectorizer"] = classifier
