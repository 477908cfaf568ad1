"""Early stopping and warm start."""

import numpy as np
import pytest
from perron_tests.errors import mentions
from perron_tests.opinions import QUICK, opinions
from sklearn.base import clone

from perron.integrations.scikit_learn import base
from perron.sklearn import CentralityClassifier
from perron.training import loop
from perron.training.metrics import Evaluation

TEXTS, LABELS = opinions()
NEW_TEXTS, _ = opinions(40, seed=1)


def mock_scores(monkeypatch, scores):
    """Replace the validation scores; return a list of the weights of each epoch."""
    remaining, epochs = iter(scores), []

    def evaluate(model, examples, *_):
        correct = np.zeros(len(examples), bool)
        correct[: round(next(remaining) * len(examples))] = True
        epochs.append({k: v.clone() for k, v in model.state_dict().items()})
        predicted = np.where(correct, examples.labels, 1 - examples.labels)
        log_probabilities = np.log(np.eye(2)[predicted] * 0.8 + 0.1)
        return Evaluation(examples.labels, log_probabilities, examples.weights)

    monkeypatch.setattr(loop, "evaluate", evaluate)
    return epochs


def test_training_stops_and_the_best_epoch_is_restored(monkeypatch):
    epochs = mock_scores(monkeypatch, [0.25, 0.75, 0.5, 0.5, 0.5, 1.0])
    model = CentralityClassifier(**QUICK, n_iter_no_change=3).fit(TEXTS, LABELS)
    assert model.n_iter_ == len(model.loss_curve_) == 5
    assert model.validation_scores_ == [0.25, 0.75, 0.5, 0.5, 0.5]
    assert model.best_validation_score_ == 0.75
    restored = model.pipeline_.model.state_dict()
    assert all(value.equal(epochs[1][name]) for name, value in restored.items())
    assert any(not value.equal(epochs[4][name]) for name, value in restored.items())


def test_without_early_stopping_every_epoch_is_trained(monkeypatch):
    epochs = mock_scores(monkeypatch, [])
    model = CentralityClassifier(**QUICK, early_stopping=False, n_iter_no_change=1)
    model.fit(TEXTS, LABELS)
    assert model.n_iter_ == len(model.loss_curve_) == 8
    assert model.validation_scores_ is model.best_validation_score_ is None
    assert not epochs
    assert model.loss_curve_[-1] < model.loss_curve_[0] / 2


def test_the_validation_split_is_stratified(monkeypatch):
    splits = []
    encode_texts = base.encode_texts

    def record(processor, texts, classes, weights):
        splits.append((texts, classes))
        return encode_texts(processor, texts, classes, weights)

    monkeypatch.setattr(base, "encode_texts", record)
    labels = ["a"] * 60 + ["b"] * 20
    CentralityClassifier(**QUICK, validation_fraction=0.2).fit(TEXTS, labels)
    (train, train_classes), (validation, validation_classes) = splits
    assert np.bincount(train_classes).tolist() == [48, 16]
    assert np.bincount(validation_classes).tolist() == [12, 4]
    assert sorted([*train, *validation]) == sorted(TEXTS)


def test_words_that_occur_only_in_validation_texts_are_unknown():
    texts = [f"word{row}" for row in range(40)]
    model = CentralityClassifier(**QUICK, validation_fraction=0.25)
    model.fit(texts, ["a", "b"] * 20)
    assert len(model.vocabulary_) == 1 + 30


def test_sample_weights_apply_to_the_validation_score(monkeypatch):
    mock_scores(monkeypatch, [0.5] * 8)
    weights = np.arange(1.0, 81.0)
    model = CentralityClassifier(**QUICK, validation_fraction=0.5)
    model.fit(TEXTS, LABELS, sample_weight=weights)
    assert model.best_validation_score_ != 0.5


def test_early_stopping_needs_two_texts_per_class():
    with pytest.raises(ValueError, match=mentions("'c'", 1, "early_stopping=False")):
        CentralityClassifier(**QUICK).fit([*TEXTS, "one"], [*LABELS, "c"])
    small = CentralityClassifier(**QUICK).fit(["a", "b", "a", "b"], ["x", "y"] * 2)
    assert small.n_iter_ >= 1


def test_a_warm_start_continues_from_the_weights():
    model = CentralityClassifier(
        **QUICK | {"max_iter": 2, "dropout": 0.0, "learning_rate": 0.03},
        early_stopping=False,
        warm_start=True,
    )
    first = model.fit(TEXTS, LABELS).loss_curve_
    before = model.pipeline_
    weights = {k: v.clone() for k, v in before.model.state_dict().items()}
    second = model.fit([*TEXTS, "unheard of"], [*LABELS, "good"]).loss_curve_
    assert max(second) < min(first)
    assert model.n_iter_ == 2
    assert "unheard" not in model.vocabulary_
    # The earlier pipeline is not modified.
    assert before is not model.pipeline_
    unchanged = before.model.state_dict()
    assert all(value.equal(weights[name]) for name, value in unchanged.items())
    cold = clone(model).set_params(warm_start=False).fit(TEXTS, LABELS)
    assert cold.loss_curve_ == cold.fit(TEXTS, LABELS).loss_curve_ == first


def test_a_warm_start_requires_the_same_classes_and_the_same_model():
    model = CentralityClassifier(**QUICK, warm_start=True).fit(TEXTS, LABELS)
    before = model.predict_proba(NEW_TEXTS)
    with pytest.raises(ValueError, match=mentions("bad, good", "y", "a, b")):
        model.fit(TEXTS, ["a", "b"] * 40)
    with pytest.raises(ValueError, match=mentions("aggregator", "warm_start=False")):
        model.set_params(num_heads=2).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=mentions("max_words", "warm_start=False")):
        model.set_params(num_heads=1, max_words=3).fit(TEXTS, LABELS)
    assert (model.predict_proba(NEW_TEXTS) == before).all()
    model.set_params(max_words=200, learning_rate=0.01).fit(TEXTS, LABELS)


def test_a_loss_that_is_not_finite_is_an_error():
    model = CentralityClassifier(**QUICK | {"learning_rate": 1e30})
    with pytest.raises(ValueError, match=mentions("loss", "learning_rate")):
        model.fit(TEXTS, LABELS)
