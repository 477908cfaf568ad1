"""The estimators for rows of numbers, so that scikit-learn's own checks can be run.

Those checks make matrices. Here a row becomes a text with a word for each number, and
whatever is no matrix reaches the estimator as it is. Rows of another length than those
of `fit` are refused, as some checks end with that; all else is the estimator's own.
"""

from typing import Any

import numpy as np

from perron.sklearn import CentralityClassifier, CentralityVectorizer

SMALL = {
    "encoder": "none",
    "hidden_dim": 8,
    "embedding_dim": 8,
    "dropout": 0.0,
    "learning_rate": 0.1,
    "batch_size": 128,
    "max_iter": 8,
    "random_state": 0,
}


def texts_of(X: Any, columns: int | None = None) -> Any:
    if isinstance(X, list) and isinstance(X[0], list):
        X = np.array(X)
    if not hasattr(X, "__array__"):
        return X
    matrix = np.asarray(X)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        return X
    if columns not in (None, matrix.shape[1]):
        raise ValueError(f"{matrix.shape[1]} columns, but {columns} were fitted")
    steps = np.clip(np.nan_to_num(matrix * 2.0), -9, 9).round().astype(int) + 9
    return [" ".join(f"x{n}y{step}" for n, step in enumerate(row)) for row in steps]


class Rows:
    """What both have in common."""

    def fit(self, X, y=None, sample_weight=None):
        super().fit(texts_of(X), y, sample_weight)
        self._columns = np.asarray(X).shape[1]
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False
        return tags


class RowClassifier(Rows, CentralityClassifier):
    def predict_proba(self, X):
        return super().predict_proba(texts_of(X, getattr(self, "_columns", None)))


class RowVectorizer(Rows, CentralityVectorizer):
    def transform(self, X):
        return super().transform(texts_of(X, getattr(self, "_columns", None)))
