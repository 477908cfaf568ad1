"""What both estimators share: their parameters, how they are fitted and pickled."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from perron.integrations.scikit_learn.inputs import (
    check_labels,
    check_texts,
    check_weights,
)
from perron.integrations.scikit_learn.learning import (
    check_same_classes,
    check_same_model,
    learn,
    new_pipeline,
    weighted,
)
from perron.integrations.scikit_learn.parameters import Parameters, read_parameters
from perron.migrations import migrate, stamp
from perron.pipeline import Pipeline, load

# torch has one stream of random numbers for all threads: fits in threads take turns.
_CHANCE = Lock()


class TextEstimator(BaseEstimator):
    """Trains a model on texts and labels; see `CentralityClassifier`."""

    pipeline_: Pipeline

    def __init__(
        self,
        aggregator: Any = "centrality",
        *,
        heads: Any = 1,
        connectivity: Any = "mlp",
        encoder: Any = "bilstm",
        hidden_size: Any = 100,
        embedding_size: Any = 100,
        vectors: Any = None,
        vector_words: Any = 20_000,
        dropout: Any = 0.4,
        lowercase: Any = True,
        min_count: Any = 1,
        max_vocabulary: Any = None,
        max_words: Any = 200,
        learning_rate: Any = 1e-3,
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
        self.heads = heads
        self.connectivity = connectivity
        self.encoder = encoder
        self.hidden_size = hidden_size
        self.embedding_size = embedding_size
        self.vectors = vectors
        self.vector_words = vector_words
        self.dropout = dropout
        self.lowercase = lowercase
        self.min_count = min_count
        self.max_vocabulary = max_vocabulary
        self.max_words = max_words
        self.learning_rate = learning_rate
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
        """The words that the model knows, with their ids."""
        check_is_fitted(self)
        words = self.pipeline_.word_ids.tokenizer.words
        return {word: row for row, word in enumerate(words)}

    def _train(self, X: Any, y: Any, sample_weight: Any) -> None:
        parameters = read_parameters(self.get_params(deep=False))
        texts = check_texts(X)
        labels = check_labels(y, texts)
        weights = check_weights(sample_weight, self.class_weight, texts, labels)
        counted = np.flatnonzero(weights)  # a text of no weight is as good as absent
        classes, numbers = np.unique(labels[counted], return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                "y must have at least two classes, but has one class: "
                f"{classes.tolist()[0]!r}"
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        parts = _parted(numbers, classes, parameters, seed)
        with _own_chance(seed, self.device):
            names = [str(name) for name in classes.tolist()]
            learnt_from = [texts[row] for row in counted[parts[0]]]
            pipeline = self._beginning(parameters, learnt_from, names, seed)
            columns = np.array(columns_of(pipeline, classes))
            pipeline.model.to(self.device)
            examples = [
                weighted(
                    pipeline.word_ids,
                    [texts[row] for row in counted[rows]],
                    columns[numbers[rows]],
                    weights[counted[rows]],
                )
                for rows in parts
            ]
            train, held_out = examples[0], examples[1] if examples[1:] else None
            history = learn(
                pipeline.model,
                parameters.training(seed),
                train,
                held_out,
                self._report,
            )
        self.pipeline_ = Pipeline(pipeline.model, pipeline.word_ids, pipeline.name)
        self.classes_ = classes
        self.n_iter_ = len(history.losses)
        self.loss_curve_ = history.losses
        self.validation_scores_ = history.scores or None
        self.best_validation_score_ = max(history.scores, default=None)

    def _beginning(
        self,
        parameters: Parameters,
        texts: Sequence[str],
        labels: Sequence[str],
        seed: int,
    ) -> Pipeline:
        """Return the model to go on with; the one before is left as it is."""
        if self.warm_start and hasattr(self, "pipeline_"):
            if self.model is None:
                check_same_model(self.pipeline_, parameters)
            check_same_classes(self.pipeline_, labels)
            return Pipeline.from_files(self.pipeline_.to_files(), self.pipeline_.name)
        if self.model is None:
            return new_pipeline(parameters, texts, labels, seed)
        pipeline = load(self.model)
        if pipeline.word_ids.kind == "pair":
            raise ValueError(f"model: {self.model} is for pairs of texts")
        check_same_classes(pipeline, labels)
        return pipeline

    def _report(self, epoch: int, loss: float, score: float | None) -> None:
        if self.verbose:
            held_out = "" if score is None else f", validation score = {score:.4f}"
            print(f"Iteration {epoch}, loss = {loss:.4f}{held_out}")

    def __getstate__(self) -> dict[str, Any]:
        """Return parameters and fitted attributes as plain data."""
        state = dict(super().__getstate__())
        if "pipeline_" in state:
            pipeline: Pipeline = state["pipeline_"]
            state["pipeline_"] = {"name": pipeline.name, "files": pipeline.to_files()}
        return stamp("pickle", state)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore what `__getstate__` returned; the model is on the CPU."""
        state = migrate("pickle", state)
        if "pipeline_" in state:
            saved = state["pipeline_"]
            state["pipeline_"] = Pipeline.from_files(saved["files"], saved["name"])
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that rows are texts."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


@contextmanager
def _own_chance(seed: int, device: Any) -> Iterator[None]:
    """Draw torch's random numbers from a seed; leave them behind as they were."""
    try:
        is_cuda = torch.device(device).type == "cuda"
    except RuntimeError as error:
        raise ValueError(f"device: {error}") from error
    with _CHANCE, torch.random.fork_rng([device] if is_cuda else []):
        torch.manual_seed(seed)
        yield


def columns_of(pipeline: Pipeline, classes: np.ndarray) -> list[int]:
    """Return where the model has each class."""
    return [pipeline.labels.index(str(name)) for name in classes.tolist()]


def _parted(
    numbers: np.ndarray, classes: np.ndarray, parameters: Parameters, seed: int
) -> list[np.ndarray]:
    """Return the rows to learn from and, for early stopping, those held out.

    Every class has its share in both, and at least one text.
    """
    if not parameters.early_stopping:
        return [np.arange(len(numbers))]
    counts = np.bincount(numbers)
    if counts.min() < 2:
        raise ValueError(
            "early stopping holds out texts of every class, but class "
            f"{classes.tolist()[counts.argmin()]!r} has only 1 sample: set "
            "early_stopping=False, or give more"
        )
    share = round(parameters.validation_fraction * len(numbers))
    least, most = len(classes), len(numbers) - len(classes)
    split = StratifiedShuffleSplit(
        1, test_size=int(np.clip(share, least, most)), random_state=seed
    )
    return [np.sort(rows) for rows in next(split.split(numbers, numbers))]
