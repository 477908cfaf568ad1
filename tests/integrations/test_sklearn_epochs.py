"""Early stopping and warm start."""

import numpy as np
import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.opinions import QUICK, opinions
from sklearn.base import clone

from perron.integrations.scikit_learn import base
from perron.sklearn import CentralityClassifier
from perron.training import loop
from perron.training.metrics import Evaluation

TEXTS, LABELS = opinions()
NEW, _ = opinions(40, seed=1)


def say(monkeypatch, scores):
    """Let the texts held out be judged as told; return the weights of each epoch."""
    told, seen = iter(scores), []

    def evaluate(model, examples, *_):
        right = np.zeros(len(examples), bool)
        right[: round(next(told) * len(examples))] = True
        seen.append({k: v.clone() for k, v in model.state_dict().items()})
        predicted = np.where(right, examples.labels, 1 - examples.labels)
        log_probabilities = np.log(np.eye(2)[predicted] * 0.8 + 0.1)
        return Evaluation(examples.labels, log_probabilities, examples.weights)

    monkeypatch.setattr(loop, "evaluate", evaluate)
    return seen


def test_training_stops_and_the_best_epoch_is_restored(monkeypatch):
    seen = say(monkeypatch, [0.25, 0.75, 0.5, 0.5, 0.5, 1.0])
    model = CentralityClassifier(**QUICK, n_iter_no_change=3).fit(TEXTS, LABELS)
    assert model.n_iter_ == len(model.loss_curve_) == 5
    assert model.validation_scores_ == [0.25, 0.75, 0.5, 0.5, 0.5]
    assert model.best_validation_score_ == 0.75
    kept = model.pipeline_.model.state_dict()
    assert all(torch.equal(kept[name], seen[1][name]) for name in kept)
    assert any(not torch.equal(kept[name], seen[4][name]) for name in kept)


def test_without_early_stopping_every_epoch_is_trained(monkeypatch):
    seen = say(monkeypatch, [])
    model = CentralityClassifier(**QUICK, early_stopping=False, n_iter_no_change=1)
    model.fit(TEXTS, LABELS)
    assert model.n_iter_ == len(model.loss_curve_) == 8
    assert model.validation_scores_ is model.best_validation_score_ is None
    assert not seen
    assert model.loss_curve_[-1] < model.loss_curve_[0] / 2


def test_every_class_has_its_share_of_what_is_held_out(monkeypatch):
    parted = []
    whole = base.encode_texts

    def keep(processor, texts, classes, weights):
        parted.append((texts, classes))
        return whole(processor, texts, classes, weights)

    monkeypatch.setattr(base, "encode_texts", keep)
    labels = ["a"] * 60 + ["b"] * 20
    CentralityClassifier(**QUICK, validation_fraction=0.2).fit(TEXTS, labels)
    (train, learned), (held, judged) = parted
    assert np.bincount(learned).tolist() == [48, 16]
    assert np.bincount(judged).tolist() == [12, 4]
    assert sorted([*train, *held]) == sorted(TEXTS)


def test_words_that_only_held_out_texts_have_are_unknown():
    texts = [f"word{row}" for row in range(40)]
    model = CentralityClassifier(**QUICK, validation_fraction=0.25)
    model.fit(texts, ["a", "b"] * 20)
    assert len(model.vocabulary_) == 1 + 30


def test_weights_count_in_what_is_held_out(monkeypatch):
    say(monkeypatch, [0.5] * 8)
    weights = np.arange(1.0, 81.0)
    model = CentralityClassifier(**QUICK, validation_fraction=0.5)
    model.fit(TEXTS, LABELS, sample_weight=weights)
    assert model.best_validation_score_ != 0.5


def test_too_few_texts_of_a_class_cannot_be_held_out():
    with pytest.raises(ValueError, match=mentions("'c'", 1, "early_stopping=False")):
        CentralityClassifier(**QUICK).fit([*TEXTS, "one"], [*LABELS, "c"])
    small = CentralityClassifier(**QUICK).fit(["a", "b", "a", "b"], ["x", "y"] * 2)
    assert small.n_iter_ >= 1


def test_a_warm_start_goes_on_from_the_weights():
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
    # what was handed out before is as it was
    assert before is not model.pipeline_
    now = before.model.state_dict()
    assert all(torch.equal(now[name], weights[name]) for name in now)
    cold = clone(model).set_params(warm_start=False).fit(TEXTS, LABELS)
    assert cold.loss_curve_ == cold.fit(TEXTS, LABELS).loss_curve_ == first


def test_a_warm_start_wants_the_same_classes_and_the_same_model():
    model = CentralityClassifier(**QUICK, warm_start=True).fit(TEXTS, LABELS)
    before = model.predict_proba(NEW)
    with pytest.raises(ValueError, match=mentions("bad, good", "y", "a, b")):
        model.fit(TEXTS, ["a", "b"] * 40)
    with pytest.raises(ValueError, match=mentions("aggregator", "warm_start=False")):
        model.set_params(num_heads=2).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=mentions("max_words", "warm_start=False")):
        model.set_params(num_heads=1, max_words=3).fit(TEXTS, LABELS)
    assert (model.predict_proba(NEW) == before).all()
    model.set_params(max_words=200, learning_rate=0.01).fit(TEXTS, LABELS)


def test_a_loss_that_is_no_number_is_told():
    model = CentralityClassifier(**QUICK | {"learning_rate": 1e30})
    with pytest.raises(ValueError, match=mentions("loss", "learning_rate")):
        model.fit(TEXTS, LABELS)
