"""`CentralityVectorizer`: vectors, data frames and saved models."""

import numpy as np
import pandas as pd
import pytest
from perron_tests.errors import mentions
from perron_tests.opinions import QUICK, opinions
from perron_tests.pipelines import small_pipeline
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

from perron.errors import DataError
from perron.sklearn import CentralityClassifier, CentralityVectorizer

TEXTS, LABELS = opinions()
NEW_TEXTS, NEW_LABELS = opinions(40, seed=1)


@pytest.fixture(scope="module")
def fitted():
    return CentralityVectorizer(**QUICK, num_heads=2).fit(TEXTS, LABELS)


def test_transform_returns_the_vectors_of_the_pipeline(fitted):
    vectors = fitted.transform(NEW_TEXTS)
    assert vectors.shape == (40, 16)  # two heads of eight
    assert vectors.dtype == np.float32
    assert (vectors == fitted.pipeline_.encode(NEW_TEXTS)).all()
    names = fitted.get_feature_names_out()
    assert names.tolist() == [f"centralityvectorizer{n}" for n in range(16)]


def test_training_matches_that_of_the_classifier(fitted):
    classifier = CentralityClassifier(**QUICK, num_heads=2).fit(TEXTS, LABELS)
    assert (classifier.pipeline_.encode(NEW_TEXTS) == fitted.transform(NEW_TEXTS)).all()
    assert classifier.loss_curve_ == fitted.loss_curve_
    ours, theirs = (set(m().get_params()) for m in (type(fitted), type(classifier)))
    assert ours == theirs


def test_the_vectors_separate_the_classes(fitted):
    model = make_pipeline(clone(fitted), LogisticRegression())
    assert model.fit(TEXTS, LABELS).score(NEW_TEXTS, NEW_LABELS) > 0.9


def test_pandas_output_has_feature_names_and_the_index_of_the_input(fitted):
    texts = pd.Series(NEW_TEXTS, index=range(100, 140))
    model = clone(fitted).set_output(transform="pandas").fit(TEXTS, LABELS)
    frame = model.transform(texts)
    assert frame.columns.tolist() == fitted.get_feature_names_out().tolist()
    assert frame.index.tolist() == texts.index.tolist()


def test_it_works_in_a_column_transformer(fitted):
    frame = pd.DataFrame({"text": NEW_TEXTS, "year": range(40)})
    columns = make_column_transformer(
        (clone(fitted), "text"), ("passthrough", ["year"])
    )
    assert columns.fit_transform(frame, NEW_LABELS).shape == (40, 17)


def test_an_unfitted_vectorizer_is_refused():
    model = CentralityVectorizer()
    for call in (lambda: model.transform(NEW_TEXTS), model.get_feature_names_out):
        with pytest.raises(NotFittedError):
            call()


class TestFromASavedModel:
    @pytest.mark.parametrize("kind", ["text", "document", "pair"])
    def test_fit_loads_the_model_unchanged(self, kind, tmp_path):
        pipeline = small_pipeline(kind)
        pipeline.save_pretrained(tmp_path)
        model = CentralityVectorizer(model=tmp_path).fit(NEW_TEXTS)
        vectors = model.transform(NEW_TEXTS)
        assert (vectors == pipeline.encode(NEW_TEXTS)).all()
        assert len(model.get_feature_names_out()) == vectors.shape[1]
        assert not get_tags(model).target_tags.required

    def test_it_works_before_another_estimator_in_a_pipeline(self, tmp_path):
        small_pipeline("text").save_pretrained(tmp_path)
        texts, labels = ["good film", "the bad film"] * 10, [0, 1] * 10
        logistic = LogisticRegression(C=1e4, max_iter=1000)
        model = make_pipeline(CentralityVectorizer(model=str(tmp_path)), logistic)
        assert clone(model).fit(texts, labels).score(texts, labels) == 1.0

    def test_a_folder_without_a_model_is_refused(self, tmp_path):
        with pytest.raises(DataError, match=mentions(tmp_path, "config.json")):
            CentralityVectorizer(model=tmp_path).fit(NEW_TEXTS)
