"""Texts to vectors."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from perron.integrations.scikit_learn.base import TextEstimator
from perron.integrations.scikit_learn.inputs import check_texts
from perron.models import PairClassifier
from perron.pipeline import load


class CentralityVectorizer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator
):
    """Turns texts into the vectors that a model pools from their words.

    Without ``model``, `fit` trains one on texts and labels, just as
    `CentralityClassifier` does, with the same parameters. With ``model``, the folder of
    a trained Perron model, `fit` loads it, learns nothing and needs no labels; all
    other parameters are without effect but ``device``.
    """

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> "CentralityVectorizer":
        """Learn from texts and their labels, or load the model.

        Args:
            X: texts; a list, array or series of strings.
            y: a label for each.
            sample_weight: what each text counts; without, all the same.
        """
        if self.model is None:
            self._train(X, y, sample_weight)
        else:
            check_texts(X)
            self.pipeline_ = load(Path(self.model))
            self.pipeline_.model.to(self.device)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the pooled vector of each text, (texts, width), float32."""
        check_is_fitted(self)
        return self.pipeline_.encode(check_texts(X))

    @property
    def _n_features_out(self) -> int:
        """The width of a vector, for `get_feature_names_out`."""
        model = self.pipeline_.model
        if isinstance(model, PairClassifier):  # whose own vector is of both texts
            return model.aggregator.out_dim
        return model.vector_dim

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn when labels are needed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.model is None
        tags.target_tags.one_d_labels = True
        tags.transformer_tags.preserves_dtype = []
        return tags
