"""Baselines: logistic regression on fixed features."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import sparse
from scipy.special import log_softmax

from perron.errors import DataError, SettingsError
from perron.experiments.records import RunRecord, outcome, source_version
from perron.experiments.report import ACCURACY, chosen_runs, compare_runs
from perron.experiments.study import BaselineName, Study, Trial
from perron.files import format_p_value
from perron.models import Classifier
from perron.models.config import HuggingFaceSettings
from perron.text.datasets import fingerprint, load_data
from perron.text.sampling import Examples, evaluation_batches
from perron.training.metrics import EVALUATION_BATCH_SIZE, METRICS, Evaluation
from perron.training.prepare import prepare
from perron.training.recipe import Recipe
from perron.training.state_cache import EncodingProgress

_TOKEN = r"\w+|[^\w\s]"
# Inverse strength of the regularization. The best value on dev is used.
_STRENGTHS: dict[BaselineName, Sequence[float]] = {
    "tfidf": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    "mean": (0.001, 0.01, 0.1, 1.0, 10.0),
}


@dataclass(frozen=True)
class BaselineResult:
    """The outcome of a baseline.

    Attributes:
        dev: Predictions for dev data.
        test: Predictions for test data; None without test data.
        strength: Inverse strength of the regularization (scikit-learn's C).
        parameters: Number of coefficients.
        seconds: Time for computing the features and fitting, without reading and
            encoding the data.
        fingerprint: Hash of the data.
    """

    dev: Evaluation
    test: Evaluation | None
    strength: float
    parameters: int
    seconds: float
    fingerprint: str


class _Data(NamedTuple):
    """Inputs of a baseline.

    Attributes:
        features: Function that computes the features of train, dev and test data.
        labels: Class index of each text, for train, dev and test; None without test
            data.
        classes: Names of the classes.
        fingerprint: Hash of the data.
    """

    features: Callable[[], list[Any]]
    labels: Sequence[Int[np.ndarray, " _"] | None]
    classes: Sequence[str]
    fingerprint: str


def check_baseline(name: BaselineName, recipe: Recipe) -> None:
    """Raise an error if a recipe has nothing to compute the features from."""
    is_pretrained = isinstance(recipe.model.encoder, HuggingFaceSettings)
    if name == "mean" and not (is_pretrained or recipe.vectors):
        raise SettingsError(
            "the baseline mean requires word vectors or a pretrained encoder, got "
            "neither. Add --vectors SOURCE or --encoder hf:NAME, or use the baseline "
            "tfidf."
        )


def fit_baseline(
    name: BaselineName,
    recipe: Recipe,
    root: Path | None = None,
    progress: EncodingProgress | None = None,
) -> BaselineResult:
    """Fit a baseline on the data of a recipe.

    The strength of the regularization is the one with the best
    ``training.metric_for_best_model`` on dev data. Class weights are taken
    from the recipe.

    Args:
        name: Name of the baseline; see `perron.experiments.study.BASELINES`.
        recipe: Settings of the data and, for means, of the encoder or word vectors.
        root: Folder of the datasets.
        progress: Callback for the progress of caching encoder states.
    """
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.linear_model import LogisticRegression

    check_baseline(name, recipe)
    data = (
        _mean_data(recipe, root, progress)
        if name == "mean"
        else _tfidf_data(recipe, root)
    )
    train_labels, dev_labels, test_labels = data.labels
    assert train_labels is not None
    assert dev_labels is not None
    if len(set(train_labels.tolist())) < 2:
        raise DataError(
            f"the baseline {name} requires training texts of at least two classes, got "
            "one class."
        )
    metric = METRICS[recipe.training.metric_for_best_model]
    sign = 1 if metric.greater_is_better else -1
    begin = time.perf_counter()
    train, dev, test = data.features()
    weights = recipe.training.text_weights(data.classes, train_labels)
    num_classes = len(data.classes)
    best: tuple[tuple[float, float], float, Evaluation, Evaluation | None] | None = None
    for strength in _STRENGTHS[name]:
        model = LogisticRegression(C=strength, max_iter=500)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(train, train_labels, weights)
        on_dev = _evaluate(model, dev, dev_labels, num_classes)
        key = (
            sign * on_dev.metrics[metric.recipe_name],
            -on_dev.metrics["log_loss"],
        )
        if best is None or key > best[0]:
            on_test = None
            if test_labels is not None:
                on_test = _evaluate(model, test, test_labels, num_classes)
            best = key, strength, on_dev, on_test
    assert best is not None
    return BaselineResult(
        dev=best[2],
        test=best[3],
        strength=best[1],
        parameters=model.coef_.size + model.intercept_.size,
        seconds=time.perf_counter() - begin,
        fingerprint=data.fingerprint,
    )


def _evaluate(
    model: Any, features: Any, labels: Int[np.ndarray, " n"], num_classes: int
) -> Evaluation:
    """Evaluate a logistic regression."""
    scores = model.decision_function(features).astype(np.float64)
    if scores.ndim == 1:  # two classes
        scores = np.stack([np.zeros_like(scores), scores], 1)
    # Classes without training texts get a probability of almost zero.
    logits = np.full((len(labels), num_classes), scores.min() - 30.0)
    logits[:, model.classes_] = scores
    return Evaluation(labels, log_softmax(logits, 1))


def _tfidf_data(recipe: Recipe, root: Path | None) -> _Data:
    """Return the inputs for TF-IDF, with one block of columns per text of a pair."""
    settings = recipe.data
    splits = load_data(settings, root)
    parts = [splits.train, splits.dev, splits.test]
    columns = ["text", "pair"] if splits.is_pair else ["text"]

    def texts(rows: Any, column: str) -> list[str]:
        separator = settings.sentence_separator
        values: list[str] = list(rows[column])
        return (
            [text.replace(separator, " ") for text in values] if separator else values
        )

    def features() -> list[Any]:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(
            lowercase=recipe.text.case == "lower",
            token_pattern=r"\S+" if settings.pretokenized else _TOKEN,
            ngram_range=(1, 2),
            sublinear_tf=True,
            dtype=np.float32,
        )
        vectorizer.fit(
            text for column in columns for text in texts(splits.train, column)
        )
        return [
            None
            if rows is None
            else sparse.hstack(
                [vectorizer.transform(texts(rows, column)) for column in columns],
                format="csr",
            )
            for rows in parts
        ]

    labels = [None if rows is None else np.asarray(rows["label"]) for rows in parts]
    return _Data(features, labels, splits.labels, fingerprint(parts, splits.labels))


def _mean_data(
    recipe: Recipe, root: Path | None, progress: EncodingProgress | None
) -> _Data:
    """Return the inputs for mean vectors, scaled to unit variance."""
    prepared = prepare(mean_recipe(recipe), root, encoding_progress=progress)
    parts = [prepared.train, prepared.dev, prepared.test]

    def features() -> list[Any]:
        train, *others = (
            None if part is None else mean_vectors(prepared.model, part)
            for part in parts
        )
        assert train is not None
        mean, std = train.mean(0), train.std(0)
        std[std == 0] = 1
        return [
            None if vectors is None else (vectors - mean) / std
            for vectors in (train, *others)
        ]

    labels = [None if part is None else part.labels for part in parts]
    return _Data(features, labels, prepared.splits.labels, prepared.fingerprint)


def mean_recipe(recipe: Recipe) -> Recipe:
    """Return a recipe whose model averages frozen states, or else word vectors."""
    table = recipe.model_dump(mode="json")
    model = table["model"] | {"aggregator": "mean", "sentence_aggregator": None}
    if isinstance(recipe.model.encoder, HuggingFaceSettings):
        model["encoder"] = model["encoder"] | {"freeze": True}
    else:
        model["encoder"] = "none"
    return Recipe.model_validate(table | {"model": model})


def mean_vectors(model: Classifier, examples: Examples) -> Float[np.ndarray, "n d"]:
    """Return the input of the head for each example, [u; v; |u - v|; u ∘ v] for pairs.

    The states of a frozen encoder are read from the cache.
    """
    vectors = np.empty((len(examples), model.vector_dim), np.float32)
    model.eval()
    with torch.inference_mode():
        for rows in evaluation_batches(examples.sizes, EVALUATION_BATCH_SIZE):
            vectors[rows] = model(**examples.batch(rows).inputs).vector.numpy()
    return vectors


def run_baseline(
    trial: Trial, root: Path | None, progress: EncodingProgress | None = None
) -> RunRecord:
    """Fit the baseline of a study and return its record."""
    assert trial.baseline is not None
    result = fit_baseline(trial.baseline, trial.recipe(), root, progress)
    test = result.test
    empty = np.empty(0, np.int64)
    return RunRecord(
        command=trial.command,
        variant=trial.variant,
        point=trial.point,
        seed=trial.seed,
        commit=source_version(),
        data=result.fingerprint[:16],
        dev=result.dev.metrics,
        test=None if test is None else test.metrics,
        epochs=1,
        best_epoch=0,
        parameters=result.parameters,
        epoch_seconds=round(result.seconds, 3),
        graphs=(),
        data_bytes=trial.data_bytes(root),
        **outcome(*((empty, empty) if test is None else (test.predicted, test.labels))),
    )


def describe_wins(study: Study, records: Sequence[RunRecord]) -> list[str]:
    """Return a sentence for each baseline that is ahead of a trained variant."""
    runs = {name: chosen_runs(study, name, records) for name in study.variants}
    tested = {
        name: own
        for name, own in runs.items()
        if own and all(run.test is not None for run in own)
    }
    sentences = []
    for baseline in tested:
        if study.variants[baseline].baseline is None:
            continue
        wins = []
        for name in tested:
            if study.variants[name].baseline is None:
                result = compare_runs(study, tested[baseline], tested[name])
                if result.difference > 0:
                    p_value = format_p_value(result.p_value)
                    sign = "p " if p_value.startswith("<") else "p = "
                    doubt = "" if result.p_value < 0.05 else ", not significant"
                    accuracy = _percent(tested[name])
                    wins.append(f"{name} ({accuracy} %, {sign}{p_value}{doubt})")
        if wins:
            others = ", ".join(wins)
            accuracy = _percent(tested[baseline])
            sentences.append(
                f"The baseline {baseline} ({accuracy} % test accuracy) is ahead of "
                f"{others}."
            )
    return sentences


def _percent(runs: Sequence[RunRecord]) -> str:
    accuracies = [run.test[ACCURACY] for run in runs if run.test is not None]
    return f"{100 * np.mean(accuracies):.1f}"
