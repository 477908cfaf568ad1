"""Estimators for rows of numbers, for running scikit-learn's estimator checks.

The checks generate matrices. Each row is turned into a text with one word per number;
anything that is not a matrix is passed to the estimator unchanged. Rows of a different
length than in `fit` are refused, because some checks require it.
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


def rows_to_texts(X: Any, columns: int | None = None) -> Any:
    if isinstance(X, list) and isinstance(X[0], list):
        X = np.array(X)
    if not hasattr(X, "__array__"):
        return X
    matrix = np.asarray(X)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        return X
    if columns not in (None, matrix.shape[1]):
        raise ValueError(f"X must have {columns} columns, got {matrix.shape[1]}.")
    steps = np.clip(np.nan_to_num(matrix * 2.0), -9, 9).round().astype(int) + 9
    return [" ".join(f"x{n}y{step}" for n, step in enumerate(row)) for row in steps]


class RowMixin:
    """Mixin that converts rows of numbers to texts."""

    def fit(self, X, y=None, sample_weight=None):
        super().fit(rows_to_texts(X), y, sample_weight)
        self._columns = np.asarray(X).shape[1]
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False
        return tags


class RowClassifier(RowMixin, CentralityClassifier):
    def predict_proba(self, X):
        return super().predict_proba(rows_to_texts(X, getattr(self, "_columns", None)))


class RowVectorizer(RowMixin, CentralityVectorizer):
    def transform(self, X):
        return super().transform(rows_to_texts(X, getattr(self, "_columns", None)))
