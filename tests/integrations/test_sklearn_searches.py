"""In scikit-learn's pipelines, searches and ensembles."""

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
LITTLE = QUICK | {"early_stopping": False}


def shouted(texts):
    return [text.upper() for text in texts]


def test_cross_validation_scores_each_part():
    scores = cross_val_score(CentralityClassifier(**LITTLE), TEXTS, LABELS, cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.9
    found = cross_val_predict(
        CentralityClassifier(**LITTLE), np.array(TEXTS), LABELS, cv=2
    )
    assert set(found) == {"bad", "good"}


def test_a_search_finds_the_better_parameters():
    grid = {"learning_rate": [1e-9, 0.1], "num_heads": [1, 2]}
    search = GridSearchCV(CentralityClassifier(**LITTLE), grid, cv=2).fit(TEXTS, LABELS)
    assert search.best_params_["learning_rate"] == 0.1
    best = search.best_estimator_.pipeline_.model.config.settings
    assert best.aggregator.num_heads == search.best_params_["num_heads"]
    assert search.predict(["a fine film", "a sour film"]).tolist() == ["good", "bad"]


@pytest.mark.slow
class TestInTwoProcesses:
    """Together, as the workers, which spend seconds on imports, are kept."""

    def test_a_search_finds_the_same(self):
        one, two = (
            GridSearchCV(CentralityClassifier(**LITTLE), {"num_heads": [1, 2]}, cv=2)
            .set_params(n_jobs=jobs)
            .fit(TEXTS, LABELS)
            .cv_results_["mean_test_score"]
            for jobs in (None, 2)
        )
        assert one.tolist() == two.tolist()

    def test_a_pickle_predicts_the_same(self):
        models = [CentralityClassifier(**LITTLE | {"random_state": n}) for n in (0, 1)]
        ask = delayed(methodcaller("predict_proba", TEXTS))
        found = Parallel(n_jobs=2)(ask(model.fit(TEXTS, LABELS)) for model in models)
        for there, model in zip(found, models, strict=True):
            np.testing.assert_allclose(there, model.predict_proba(TEXTS), atol=1e-6)


def test_a_random_search_may_draw_numpys_numbers():
    choices = {"hidden_dim": np.arange(4, 6), "connectivity": np.array(["query"])}
    model = CentralityClassifier(**LITTLE | {"max_iter": 1})
    search = RandomizedSearchCV(model, choices, n_iter=2, cv=2, random_state=0)
    assert search.fit(TEXTS, LABELS).best_params_["hidden_dim"] in (4, 5)


def test_it_is_a_step_of_a_pipeline():
    model = Pipeline(
        [
            ("shout", FunctionTransformer(shouted)),
            ("classify", CentralityClassifier(**LITTLE)),
        ]
    )
    model.set_params(classify__lowercase=False).fit(TEXTS, LABELS)
    assert "FILM" in model[-1].vocabulary_
    assert model.score(TEXTS, LABELS) > 0.9


def test_a_vectorizer_inside_a_pipeline_is_searched():
    model = make_pipeline(CentralityVectorizer(**LITTLE), LogisticRegression())
    grid = {"centralityvectorizer__aggregator": ["centrality", "mean"]}
    search = GridSearchCV(model, grid, cv=2).fit(TEXTS, LABELS)
    assert search.best_score_ > 0.8


def test_it_votes_with_others():
    words = make_pipeline(TfidfVectorizer(), LogisticRegression())
    model = VotingClassifier(
        [("graph", CentralityClassifier(**LITTLE)), ("words", words)], voting="soft"
    )
    assert model.fit(TEXTS, LABELS).score(TEXTS, LABELS) > 0.9


def test_fits_in_threads_are_those_of_one_thread():
    models = [CentralityClassifier(**LITTLE | {"random_state": n}) for n in (0, 1)]
    alone = [clone(model).fit(TEXTS, LABELS).loss_curve_ for model in models]
    threads = [
        threading.Thread(target=model.fit, args=(TEXTS, LABELS)) for model in models
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [model.loss_curve_ for model in models] == alone
