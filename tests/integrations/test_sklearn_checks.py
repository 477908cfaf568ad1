"""scikit-learn's estimator checks, as far as they apply to texts."""

import re
import warnings
from pathlib import Path

import pytest
from perron_tests.rows_as_texts import SMALL, RowClassifier, RowVectorizer
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import (
    check_estimator,
    estimator_checks_generator,
)

from perron.sklearn import CentralityClassifier, CentralityVectorizer

PAGE = Path(__file__).parents[2] / "docs" / "scikit_learn.md"

NO_COLUMNS = "texts have no columns to count"
NO_NUMBERS = "tests numbers in X; a row that is not a string is rejected"
NOT_APPLICABLE = {
    "check_n_features_in": NO_COLUMNS,
    "check_n_features_in_after_fitting": NO_COLUMNS,
    "check_complex_data": NO_NUMBERS,
    "check_dtype_object": NO_NUMBERS,
    "check_estimators_nan_inf": NO_NUMBERS,
    "check_estimators_empty_data_messages": (
        "a row without columns is an empty text, which is valid; an X without rows is "
        "rejected"
    ),
    "check_fit2d_predict1d": (
        "texts are one-dimensional; numbers are rejected, with a different message"
    ),
    "check_sample_weight_equivalence_on_dense_data": (
        "training uses random batches, so repeating a text is not equivalent to "
        "doubling its weight"
    ),
    "check_methods_sample_order_invariance": (
        "the tolerance is 1e-9, but the last bits of float32 depend on the other texts "
        "in the batch"
    ),
}


def checks():
    for kind in (RowClassifier, RowVectorizer):
        estimator = kind(**SMALL, early_stopping=False)
        for configured, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            options = getattr(check, "keywords", {})
            parts = [name, *(str(value) for value in options.values())]
            yield pytest.param(
                configured, check, name, id=f"{kind.__name__}-{'-'.join(parts)}"
            )


CHECKS = list(checks())


@pytest.mark.parametrize(("estimator", "check", "name"), CHECKS)
def test_the_estimator_check_passes(estimator, check, name):
    if name == "check_class_weight_classifiers":
        estimator.set_params(early_stopping=True)  # or it trains a thousand epochs
    if name not in NOT_APPLICABLE:
        check(estimator)
    elif name != "check_methods_sample_order_invariance":  # may pass by chance
        with pytest.raises((AssertionError, ValueError, TypeError)):
            check(estimator)


def test_every_exception_is_an_existing_check():
    assert set(NOT_APPLICABLE) <= {parameters.values[2] for parameters in CHECKS}


def test_the_page_lists_the_exceptions_with_their_reasons():
    rows = re.findall(r"^\| `(check_\w+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == NOT_APPLICABLE


@pytest.mark.parametrize("kind", [CentralityClassifier, CentralityVectorizer])
def test_check_estimator_skips_text_estimators(kind):
    with warnings.catch_warnings(record=True, action="always") as caught:
        results = check_estimator(kind())
    assert [check["check_name"] for check in results] == ["check_estimator_cloneable"]
    assert {warning.category for warning in caught} == {SkipTestWarning}
