"""The estimators in scikit-learn's pipelines, searches and ensembles."""

import threading
from operator import methodcaller

import numpy as np
import pytest
from joblib import Parallel, delayed
from perron_tests.opinions import QUICK, opinions
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from perron.sklearn import CentralityClassifier, CentralityVectorizer

TEXTS, LABELS = opinions()
SMALL = QUICK | {"early_stopping": False}


def to_upper(texts):
    return [text.upper() for text in texts]


def test_cross_validation_scores_each_fold():
    scores = cross_val_score(CentralityClassifier(**SMALL), TEXTS, LABELS, cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.9
    predictions = cross_val_predict(
        CentralityClassifier(**SMALL), np.array(TEXTS), LABELS, cv=2
    )
    assert set(predictions) == {"bad", "good"}


def test_a_grid_search_finds_the_better_parameters():
    grid = {"learning_rate": [1e-9, 0.1], "num_heads": [1, 2]}
    search = GridSearchCV(CentralityClassifier(**SMALL), grid, cv=2).fit(TEXTS, LABELS)
    assert search.best_params_["learning_rate"] == 0.1
    best = search.best_estimator_.pipeline_.model.config.settings
    assert best.aggregator.num_heads == search.best_params_["num_heads"]
    assert search.predict(["a fine film", "a sour film"]).tolist() == ["good", "bad"]


@pytest.mark.slow
class TestTwoProcesses:
    """Tests that share worker processes, whose imports take seconds."""

    def test_a_search_has_the_same_scores(self):
        one, two = (
            GridSearchCV(CentralityClassifier(**SMALL), {"num_heads": [1, 2]}, cv=2)
            .set_params(n_jobs=jobs)
            .fit(TEXTS, LABELS)
            .cv_results_["mean_test_score"]
            for jobs in (None, 2)
        )
        assert one.tolist() == two.tolist()

    def test_a_pickle_predicts_the_same(self):
        models = [CentralityClassifier(**SMALL | {"random_state": n}) for n in (0, 1)]
        predict = delayed(methodcaller("predict_proba", TEXTS))
        results = Parallel(n_jobs=2)(predict(m.fit(TEXTS, LABELS)) for m in models)
        for result, model in zip(results, models, strict=True):
            np.testing.assert_allclose(result, model.predict_proba(TEXTS), atol=1e-6)


def test_a_randomized_search_can_use_numpy_values():
    choices = {"hidden_dim": np.arange(4, 6), "connectivity": np.array(["query"])}
    model = CentralityClassifier(**SMALL | {"max_iter": 1})
    search = RandomizedSearchCV(model, choices, n_iter=2, cv=2, random_state=0)
    assert search.fit(TEXTS, LABELS).best_params_["hidden_dim"] in (4, 5)


def test_it_can_be_a_step_of_a_pipeline():
    model = Pipeline(
        [
            ("upper", FunctionTransformer(to_upper)),
            ("classify", CentralityClassifier(**SMALL)),
        ]
    )
    model.set_params(classify__lowercase=False).fit(TEXTS, LABELS)
    assert "FILM" in model[-1].vocabulary_
    assert model.score(TEXTS, LABELS) > 0.9


def test_a_search_can_tune_a_vectorizer_in_a_pipeline():
    model = make_pipeline(CentralityVectorizer(**SMALL), LogisticRegression())
    grid = {"centralityvectorizer__aggregator": ["centrality", "mean"]}
    search = GridSearchCV(model, grid, cv=2).fit(TEXTS, LABELS)
    assert search.best_score_ > 0.8


def test_it_can_be_part_of_a_voting_classifier():
    words = make_pipeline(TfidfVectorizer(), LogisticRegression())
    model = VotingClassifier(
        [("graph", CentralityClassifier(**SMALL)), ("words", words)], voting="soft"
    )
    assert model.fit(TEXTS, LABELS).score(TEXTS, LABELS) > 0.9


def test_fits_in_threads_have_the_results_of_one_thread():
    models = [CentralityClassifier(**SMALL | {"random_state": n}) for n in (0, 1)]
    alone = [clone(model).fit(TEXTS, LABELS).loss_curve_ for model in models]
    threads = [
        threading.Thread(target=model.fit, args=(TEXTS, LABELS)) for model in models
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [model.loss_curve_ for model in models] == alone
