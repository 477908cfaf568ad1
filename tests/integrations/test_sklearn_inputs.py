"""Validation of texts, labels, weights and parameters."""

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
ONE_EPOCH = {"max_iter": 1, "early_stopping": False}


@pytest.mark.parametrize(
    "values",
    [
        ("a", "", "c"),
        np.array(["a", "", "c"]),
        np.array(["a", "", "c"], object),
        pd.Series(["a", "", "c"], index=[5, 9, 2]),
        pd.Series(["a", "", "c"], dtype="string"),
        pd.Series(["a", "", "c"], dtype="category"),
        (letter for letter in ["a", "", "c"]),
    ],
    ids=lambda values: f"{type(values).__name__} {getattr(values, 'dtype', '')}",
)
def test_texts_can_be_any_sequence_of_strings(values):
    texts = check_texts(values)
    assert texts == ["a", "", "c"]
    assert {type(text) for text in texts} == {str}


@pytest.mark.parametrize(
    ("values", "message"),
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
def test_invalid_texts_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        check_texts(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            None,
            "requires y to be passed, but the target y is None",
        ),
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
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_labels_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        check_labels(values, ["a text", "another"])


def test_a_column_vector_of_labels_is_accepted_with_a_warning():
    with pytest.warns(DataConversionWarning, match="column-vector"):
        labels = check_labels(np.array([["a"], ["b"]]), ["a text", "another"])
    assert labels.tolist() == ["a", "b"]
    assert check_labels(pd.Series(["x", "y"]), ["a", "b"]).tolist() == ["x", "y"]


def test_a_single_class_is_refused():
    with pytest.raises(ValueError, match=mentions("y", "'good'")):
        CentralityClassifier().fit(["a", "b"], ["good", "good"])


@pytest.mark.parametrize(
    ("sample_weight", "class_weight", "message"),
    [
        ([1.0], None, "sample_weight.shape"),
        ([1.0, -1.0], None, "Negative values"),
        ([1.0, float("nan")], None, "contains NaN"),
        ([0.0, 0.0], None, "weight"),
        ([1.0, 1.0], {"a": 0, "b": 0}, "weight"),
        (None, "even", "class_weight"),
    ],
)
def test_invalid_weights_are_refused(sample_weight, class_weight, message):
    with pytest.raises(ValueError, match=message):
        check_weights(sample_weight, class_weight, ["x", "y"], np.array(["a", "b"]))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_heads", 0, r"num_heads .*\b1\b.*\b0\b"),
        ("hidden_dim", 2.5, r"hidden_dim .*integer.*2\.5"),
        ("dropout", 1.0, r"dropout .*1\.0"),
        ("learning_rate", -1, "learning_rate "),
        ("validation_fraction", 0, "validation_fraction "),
        ("connectivity", "odd", "connectivity: "),
        ("max_vocabulary", 0, "max_vocabulary "),
        ("vectors", 3, "vectors"),
        ("aggregator", "median", "aggregator .*'centrality'.*'median'"),
        ("encoder", {"name": "cnn", "depth": 3}, r"encoder\.(cnn\.)?depth"),
        ("encoder", {}, "encoder"),
        ("device", "abacus", "device: "),
        ("max_iter", None, "max_iter"),
    ],
)
def test_an_invalid_parameter_is_named_by_fit(name, value, message):
    model = CentralityClassifier(**{name: value})  # does not raise
    with pytest.raises(ValueError, match=message):
        model.fit(TEXTS, LABELS)


def test_vectors_can_be_one_source_or_a_list_or_a_tuple():
    params = CentralityClassifier().get_params()
    for vectors in (["a", "b"], ("a", "b")):
        assert read_parameters(params | {"vectors": vectors}).sources == ("a", "b")
    assert read_parameters(params | {"vectors": "a"}).sources == ("a",)
    assert read_parameters(params).sources == ()


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_prediction_checks_the_texts(method):
    model = CentralityClassifier(**QUICK | ONE_EPOCH).fit(TEXTS, LABELS)
    for texts, message in (("a text", r"\[text\]"), (["a", 3], r"row 1.*\b3\b")):
        with pytest.raises(ValueError, match=message):
            getattr(model, method)(texts)
    assert len(getattr(model, method)(pd.Series(["a", "b"], index=[8, 9]))) == 2


def test_a_vectorizer_without_a_model_requires_labels():
    with pytest.raises(ValueError, match="requires y to be passed"):
        CentralityVectorizer().fit(TEXTS)


def test_an_import_without_the_extra_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "perron.integrations.scikit_learn", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'perron\[train\]'"):
        runpy.run_path(perron.sklearn.__file__)
