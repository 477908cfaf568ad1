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
NEW, ANSWERS = opinions(40, seed=1)


@pytest.fixture(scope="module")
def fitted():
    return CentralityVectorizer(**QUICK, num_heads=2).fit(TEXTS, LABELS)


def test_texts_become_the_vectors_that_the_model_pools(fitted):
    found = fitted.transform(NEW)
    assert found.shape == (40, 16)  # two heads of eight
    assert found.dtype == np.float32
    assert (found == fitted.pipeline_.encode(NEW)).all()
    names = fitted.get_feature_names_out()
    assert names.tolist() == [f"centralityvectorizer{n}" for n in range(16)]


def test_it_is_trained_as_the_classifier_is(fitted):
    classifier = CentralityClassifier(**QUICK, num_heads=2).fit(TEXTS, LABELS)
    assert (classifier.pipeline_.encode(NEW) == fitted.transform(NEW)).all()
    assert classifier.loss_curve_ == fitted.loss_curve_
    ours, theirs = (set(m().get_params()) for m in (type(fitted), type(classifier)))
    assert ours == theirs


def test_vectors_tell_the_classes_apart(fitted):
    model = make_pipeline(clone(fitted), LogisticRegression())
    assert model.fit(TEXTS, LABELS).score(NEW, ANSWERS) > 0.9


def test_frames_come_out_with_names_and_the_index_that_went_in(fitted):
    texts = pd.Series(NEW, index=range(100, 140))
    found = clone(fitted).set_output(transform="pandas").fit(TEXTS, LABELS)
    frame = found.transform(texts)
    assert frame.columns.tolist() == fitted.get_feature_names_out().tolist()
    assert frame.index.tolist() == texts.index.tolist()


def test_it_takes_a_column_of_a_frame(fitted):
    frame = pd.DataFrame({"text": NEW, "year": range(40)})
    columns = make_column_transformer(
        (clone(fitted), "text"), ("passthrough", ["year"])
    )
    assert columns.fit_transform(frame, ANSWERS).shape == (40, 17)


def test_it_must_be_fitted_first():
    model = CentralityVectorizer()
    for call in (lambda: model.transform(NEW), model.get_feature_names_out):
        with pytest.raises(NotFittedError):
            call()


class TestOfASavedModel:
    @pytest.mark.parametrize("kind", ["text", "document", "pair"])
    def test_it_is_taken_as_it_is(self, kind, tmp_path):
        pipeline = small_pipeline(kind)
        pipeline.save_pretrained(tmp_path)
        model = CentralityVectorizer(model=tmp_path).fit(NEW)
        found = model.transform(NEW)
        assert (found == pipeline.encode(NEW)).all()
        assert len(model.get_feature_names_out()) == found.shape[1]
        assert not get_tags(model).target_tags.required

    def test_it_stands_before_another_estimator(self, tmp_path):
        small_pipeline("text").save_pretrained(tmp_path)
        texts, labels = ["good film", "the bad film"] * 10, [0, 1] * 10
        model = make_pipeline(CentralityVectorizer(model=str(tmp_path)), _logistic())
        assert clone(model).fit(texts, labels).score(texts, labels) == 1.0

    def test_a_folder_without_one_is_refused(self, tmp_path):
        with pytest.raises(DataError, match=mentions(tmp_path, "config.json")):
            CentralityVectorizer(model=tmp_path).fit(NEW)


def _logistic():
    return LogisticRegression(C=1e4, max_iter=1000)
