"""What is taken for texts and labels, and what is refused, with its row."""

import runpy
import sys

import numpy as np
import pandas as pd
import pytest
from perron_tests.errors import mentions
from perron_tests.opinions import QUICK, opinions
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

import perron.sklearn
from perron.integrations.scikit_learn.parameters import (
    check_labels,
    check_texts,
    check_weights,
    read_parameters,
)
from perron.sklearn import CentralityClassifier, CentralityVectorizer

TEXTS, LABELS = opinions(40)
ONE = {"max_iter": 1, "early_stopping": False}


@pytest.mark.parametrize(
    "given",
    [
        ("a", "", "c"),
        np.array(["a", "", "c"]),
        np.array(["a", "", "c"], object),
        pd.Series(["a", "", "c"], index=[5, 9, 2]),
        pd.Series(["a", "", "c"], dtype="string"),
        pd.Series(["a", "", "c"], dtype="category"),
        (letter for letter in ["a", "", "c"]),
    ],
    ids=lambda given: f"{type(given).__name__} {getattr(given, 'dtype', '')}",
)
def test_texts_come_in_many_forms(given):
    texts = check_texts(given)
    assert texts == ["a", "", "c"]
    assert {type(text) for text in texts} == {str}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a text", r"texts.*\[text\]"),
        (b"a text", r"texts.*\[text\]"),
        (None, "texts.*NoneType"),
        (7, r"texts.*\bint\b"),
        ({"a": 1}, r"texts.*\bdict\b"),
        ({"a"}, r"texts.*\bset\b"),
        ([], "Found 0 sample"),
        (["a", b"b"], "row 1.*b'b'"),
        (["a", None], "row 1.*None.*empty string"),
        (["a", "b", float("nan")], "row 2.*nan"),
        ([["a", "b"]], r"row 0.*\['a', 'b'\]"),
        ([1.5], r"row 0.*\b1\.5"),
        (np.zeros((3, 2)), r"texts.*\(3, 2\).*one column"),
        (np.array("a"), r"texts.*shape \(\)"),
        (pd.DataFrame({"text": ["a"]}), r"texts.*\(1, 1\).*one column"),
        (pd.Series(["a", None], dtype="string"), "row 1.*<NA>"),
        (sparse.csr_matrix(np.eye(2)), "Sparse"),
        (["a", "\ud800"], "row 1.*Unicode"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        check_texts(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "requires y to be passed, but the target y is None"),  # scikit-learn's
        (5, r"\by\b.*\bint\b"),
        ("ab", r"\by\b.*\bstr\b"),
        (["a", 1], r"row 0.*'a'.*row 1.*\b1\b"),
        ([1, "a"], r"row 0.*\b1\b.*row 1.*'a'"),
        (np.array(["a", None], object), "row 0.*'a'.*row 1.*None"),
        ([1.0, float("nan")], "y contains NaN"),
        ([0.5, 1.5], "Unknown label type: continuous"),
        ([[1, 0], [0, 1]], "y should be a 1d array"),
        ([object(), object()], "Unknown label type"),
        (["a"], "inconsistent numbers of samples"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_labels_of_no_use_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        check_labels(given, ["a text", "another"])


def test_a_column_of_labels_is_taken_with_a_warning():
    with pytest.warns(DataConversionWarning, match="column-vector"):
        labels = check_labels(np.array([["a"], ["b"]]), ["a text", "another"])
    assert labels.tolist() == ["a", "b"]
    assert check_labels(pd.Series(["x", "y"]), ["a", "b"]).tolist() == ["x", "y"]


def test_one_class_is_too_few():
    with pytest.raises(ValueError, match=mentions("y", "'good'")):
        CentralityClassifier().fit(["a", "b"], ["good", "good"])


@pytest.mark.parametrize(
    ("weights", "of_class", "message"),
    [
        ([1.0], None, "sample_weight.shape"),
        ([1.0, -1.0], None, "Negative values"),
        ([1.0, float("nan")], None, "contains NaN"),
        ([0.0, 0.0], None, "zero"),
        ([1.0, 1.0], {"a": 0, "b": 0}, "weight.*zero"),
        (None, "even", "class_weight"),
    ],
)
def test_weights_of_no_use_are_refused(weights, of_class, message):
    with pytest.raises(ValueError, match=message):
        check_weights(weights, of_class, ["x", "y"], np.array(["a", "b"]))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_heads", 0, r"heads: .*\b1\b.*\b0\b"),
        ("hidden_dim", 2.5, r"hidden_dim: .*integer.*2\.5"),
        ("dropout", 1.0, r"dropout: .*1\.0"),
        ("learning_rate", -1, "learning_rate: "),
        ("validation_fraction", 0, "validation_fraction: "),
        ("connectivity", "odd", "connectivity: "),
        ("max_vocabulary", 0, "max_vocabulary: "),
        ("vectors", 3, "vectors"),
        ("aggregator", "median", "aggregator: .*'centrality'.*'median'"),
        ("encoder", {"name": "cnn", "depth": 3}, r"encoder\.cnn\.depth"),
        ("encoder", {}, "encoder: "),
        ("encoder", "hf:some/model", "encoder.*hf:.*perron train.*model="),
        ("device", "abacus", "device: "),
        ("max_iter", None, "max_iter: "),
    ],
)
def test_a_wrong_parameter_is_named_when_it_is_used(name, value, message):
    model = CentralityClassifier(**{name: value})  # not before
    with pytest.raises(ValueError, match=message):
        model.fit(TEXTS, LABELS)


def test_several_sources_of_vectors_are_a_list_or_a_tuple():
    given = CentralityClassifier().get_params()
    for vectors in (["a", "b"], ("a", "b")):
        assert read_parameters(given | {"vectors": vectors}).sources == ("a", "b")
    assert read_parameters(given | {"vectors": "a"}).sources == ("a",)
    assert read_parameters(given).sources == ()


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_texts_are_checked_when_they_are_classified(method):
    model = CentralityClassifier(**QUICK | ONE).fit(TEXTS, LABELS)
    for texts, message in (("a text", r"\[text\]"), (["a", 3], r"row 1.*\b3\b")):
        with pytest.raises(ValueError, match=message):
            getattr(model, method)(texts)
    assert len(getattr(model, method)(pd.Series(["a", "b"], index=[8, 9]))) == 2


def test_a_vectorizer_that_learns_wants_labels():
    with pytest.raises(ValueError, match="requires y to be passed"):
        CentralityVectorizer().fit(TEXTS)


def test_a_missing_library_is_named_with_the_extra_that_has_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "perron.integrations.scikit_learn", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'perron\[train\]'"):
        runpy.run_path(perron.sklearn.__file__)
