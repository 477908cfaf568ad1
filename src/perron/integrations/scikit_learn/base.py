"""Base class of the estimators: parameters, training and pickling."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from perron.integrations.scikit_learn.parameters import (
    Parameters,
    check_labels,
    check_texts,
    check_weights,
    encode_texts,
    read_parameters,
)
from perron.migrations import migrate, stamp
from perron.pipeline import Pipeline, load
from perron.text.vocabulary import count_words
from perron.training.callbacks import Callback
from perron.training.loop import Loop, SingleDevice
from perron.training.prepare import build_classifier, cached_examples

# torch has a single random state for all threads, so fits in threads run one at a time.
_RNG_LOCK = Lock()


class TextEstimator(BaseEstimator):
    """Base class of text estimators. See `CentralityClassifier` for the parameters."""

    pipeline_: Pipeline

    def __init__(
        self,
        aggregator: Any = "centrality",
        *,
        num_heads: Any = 1,
        connectivity: Any = "mlp",
        encoder: Any = "auto",
        hidden_dim: Any = 100,
        embedding_dim: Any = 100,
        vectors: Any = None,
        vector_words: Any = 20_000,
        dropout: Any = None,
        lowercase: Any = True,
        min_count: Any = 1,
        max_vocabulary: Any = None,
        max_words: Any = 200,
        learning_rate: Any = 1e-3,
        lr_scheduler_type: Any = "linear",
        warmup_ratio: Any = 0.1,
        alpha: Any = 1e-6,
        batch_size: Any = 32,
        max_iter: Any = 20,
        early_stopping: Any = True,
        validation_fraction: Any = 0.1,
        n_iter_no_change: Any = 3,
        class_weight: Any = None,
        warm_start: Any = False,
        model: Any = None,
        device: Any = "cpu",
        random_state: Any = None,
        verbose: Any = False,
    ) -> None:
        self.aggregator = aggregator
        self.num_heads = num_heads
        self.connectivity = connectivity
        self.encoder = encoder
        self.hidden_dim = hidden_dim
        self.embedding_dim = embedding_dim
        self.vectors = vectors
        self.vector_words = vector_words
        self.dropout = dropout
        self.lowercase = lowercase
        self.min_count = min_count
        self.max_vocabulary = max_vocabulary
        self.max_words = max_words
        self.learning_rate = learning_rate
        self.lr_scheduler_type = lr_scheduler_type
        self.warmup_ratio = warmup_ratio
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.model = model
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def vocabulary_(self) -> dict[str, int]:
        """Mapping of words to word ids."""
        check_is_fitted(self)
        words = self.pipeline_.processor.tokenizer.words
        return {word: row for row, word in enumerate(words)}

    def _train(self, X: Any, y: Any, sample_weight: Any) -> None:
        parameters = read_parameters(self.get_params(deep=False))
        texts = check_texts(X)
        labels = check_labels(y, texts)
        weights = check_weights(sample_weight, self.class_weight, texts, labels)
        used = np.flatnonzero(weights)  # ignore texts with zero weight
        classes, numbers = np.unique(labels[used], return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                "y must have at least two classes, got only one class: "
                f"{classes.tolist()[0]!r}."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        splits = _split(numbers, classes, parameters, seed)
        with _seeded_rng(seed, self.device):
            names = [str(name) for name in classes.tolist()]
            train_texts = [texts[row] for row in used[splits[0]]]
            pipeline = self._initial_pipeline(parameters, train_texts, names, seed)
            columns = np.array(class_columns(pipeline, classes))
            settings = parameters.training(seed)
            parts = [
                encode_texts(
                    pipeline.processor,
                    [texts[row] for row in used[rows]],
                    columns[numbers[rows]],
                    weights[used[rows]],
                )
                for rows in splits
            ]
            train, *validation = cached_examples(pipeline.model, parts, settings)
            history, best = _History(self.verbose), _BestWeights()
            Loop(
                pipeline.model,
                settings,
                train,
                validation[0] if validation else None,
                accelerator=SingleDevice(self.device),
                callbacks=[history, best] if validation else [history],
            ).run()
            if validation:
                pipeline.model.load_state_dict(best.weights)
        self.pipeline_ = Pipeline(pipeline.model, pipeline.processor, pipeline.name)
        self.classes_ = classes
        self.n_iter_ = len(history.losses)
        self.loss_curve_ = history.losses
        self.validation_scores_ = history.scores or None
        self.best_validation_score_ = max(history.scores, default=None)

    def _initial_pipeline(
        self,
        parameters: Parameters,
        texts: Sequence[str],
        labels: Sequence[str],
        seed: int,
    ) -> Pipeline:
        """Return the model to train. The model of the last `fit` is not modified."""
        if self.warm_start and hasattr(self, "pipeline_"):
            if self.model is None:
                _check_same_model(self.pipeline_, parameters)
            _check_same_classes(self.pipeline_, labels)
            return Pipeline.from_files(self.pipeline_.to_files(), self.pipeline_.name)
        if self.model is None:
            return _new_pipeline(parameters, texts, labels, seed)
        pipeline = load(self.model)
        if pipeline.processor.kind == "pair":
            raise ValueError(
                f"model must take single texts, but {self.model} takes pairs of texts."
            )
        _check_same_classes(pipeline, labels)
        return pipeline

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and fitted attributes as plain data."""
        state = dict(super().__getstate__())
        if "pipeline_" in state:
            pipeline: Pipeline = state["pipeline_"]
            state["pipeline_"] = {"name": pipeline.name, "files": pipeline.to_files()}
        return stamp("pickle", state)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore the state of `__getstate__`, with the model on the CPU."""
        state = migrate("pickle", state)
        if "pipeline_" in state:
            saved = state["pipeline_"]
            state["pipeline_"] = Pipeline.from_files(saved["files"], saved["name"])
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        """Return the tags, which declare that samples are strings."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


class _History(Callback):
    """Records the loss and the validation score of each epoch."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self.losses: list[float] = []
        self.scores: list[float] = []

    def on_epoch_end(self, loop: Loop, record: dict[str, Any]) -> None:
        self.losses.append(record["train_log_loss"])
        validation = ""
        if "dev_accuracy" in record:
            self.scores.append(record["dev_accuracy"])
            validation = f", validation score = {self.scores[-1]:.4f}"
        if self._verbose:
            epoch, loss = len(self.losses), self.losses[-1]
            print(f"Iteration {epoch}, loss = {loss:.4f}{validation}")


class _BestWeights(Callback):
    """Keeps the weights of the best epoch in memory."""

    def __init__(self) -> None:
        self.weights: dict[str, torch.Tensor] = {}

    def on_evaluate(self, loop: Loop, record: dict[str, Any]) -> None:
        if record["is_best"]:
            state = loop.model.state_dict()
            self.weights = {name: tensor.clone() for name, tensor in state.items()}


def _new_pipeline(
    parameters: Parameters, texts: Sequence[str], labels: Sequence[str], seed: int
) -> Pipeline:
    """Build a vocabulary and a model, with word vectors if there are any."""
    text, limit = parameters.text, parameters.max_vocabulary
    built = build_classifier(
        parameters.model(),
        text,
        labels,
        seed,
        count=lambda: dict(islice(count_words([texts], text.case).items(), limit)),
        vectors=parameters.sources,
    )
    return Pipeline(built.model, built.processor)


def _check_same_model(pipeline: Pipeline, parameters: Parameters) -> None:
    """Raise a ValueError if the parameters describe a different model."""
    config = pipeline.model.config
    expected = parameters.model(config.settings.embedding.embedding_dim)
    changed = [
        name
        for name in type(expected).model_fields
        if getattr(expected, name) != getattr(config.settings, name)
    ]
    if parameters.max_words != config.max_words:
        changed.append("max_words")
    if changed:
        raise ValueError(
            "warm_start=True requires the same model, but the parameters describe a "
            f"different {changed[0]}. Restore them, or set warm_start=False."
        )


def _check_same_classes(pipeline: Pipeline, labels: Sequence[str]) -> None:
    """Raise a ValueError if the labels are not exactly those of the model."""
    if set(labels) != set(pipeline.labels):
        raise ValueError(
            "y must have the classes of the model "
            f"({', '.join(pipeline.labels)}), got {', '.join(labels)}."
        )


@contextmanager
def _seeded_rng(seed: int, device: Any) -> Iterator[None]:
    """Seed torch inside the context and restore its random state afterward."""
    try:
        is_cuda = torch.device(device).type == "cuda"
    except RuntimeError as error:
        raise ValueError(f"device: {error}") from error
    with _RNG_LOCK, torch.random.fork_rng([device] if is_cuda else []):
        torch.manual_seed(seed)
        yield


def class_columns(pipeline: Pipeline, classes: np.ndarray) -> list[int]:
    """Return the index of each class in the outputs of the model."""
    return [pipeline.labels.index(str(name)) for name in classes.tolist()]


def _split(
    numbers: np.ndarray, classes: np.ndarray, parameters: Parameters, seed: int
) -> list[np.ndarray]:
    """Return the rows for training and, with early stopping, those for validation.

    The split is stratified. Every class has at least one text in each part.
    """
    if not parameters.early_stopping:
        return [np.arange(len(numbers))]
    counts = np.bincount(numbers)
    if counts.min() < 2:
        raise ValueError(
            "early stopping requires at least 2 samples per class, but class "
            f"{classes.tolist()[counts.argmin()]!r} has only 1 sample. Set "
            "early_stopping=False, or add samples."
        )
    size = round(parameters.validation_fraction * len(numbers))
    size = int(np.clip(size, len(classes), len(numbers) - len(classes)))
    splitter = StratifiedShuffleSplit(1, test_size=size, random_state=seed)
    return [np.sort(rows) for rows in next(splitter.split(numbers, numbers))]
