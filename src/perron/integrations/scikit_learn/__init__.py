"""Text estimators for scikit-learn (extra ``train``)."""

import sys

from perron.integrations.scikit_learn import classifier
from perron.integrations.scikit_learn.classifier import (
    CentralityClassifier,
    CentralityVectorizer,
)

__all__ = ["CentralityClassifier", "CentralityVectorizer"]

# A pickle stores the module of a class. Pickles store the public module, so that these
# modules can be renamed. Pickles of format version 1 refer to the module `vectorizer`.
CentralityClassifier.__module__ = CentralityVectorizer.__module__ = "perron.sklearn"
sys.modules[f"{__name__}.vectorizer"] = classifier
