from itertools import product

import numpy as np
import pytest
from scipy.stats import permutation_test

from perron.experiments.report import paired_p_value


def predictions(rate: float, count: int, seeds: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((seeds, count)) < rate


def test_identical_predictions_have_a_p_value_of_one():
    correct = predictions(0.8, 200)
    assert paired_p_value(correct, correct) == 1.0


def test_six_examples_match_a_manual_calculation():
    # All six examples are better: two of 2**6 permutations are as extreme.
    first, second = np.ones((1, 6), bool), np.zeros((1, 6), bool)
    assert paired_p_value(first, second) == pytest.approx(2 / 64)


@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 7, 10])
def test_all_permutations_are_counted(count, seeds):
    first, second = (
        predictions(0.7, count, seeds),
        predictions(0.4, count, seeds, seed=1),
    )
    difference = first.sum(0) - second.sum(0)
    signs = np.array(list(product((-1, 1), repeat=count)))
    extreme = np.abs(signs @ difference) >= abs(difference.sum())
    assert paired_p_value(first, second) == pytest.approx(extreme.mean(), abs=1e-12)


def test_many_examples_are_fast_and_p_stays_in_range():
    first, second = np.ones((5, 100_000), bool), predictions(0.5, 100_000, 5)
    assert 0 <= paired_p_value(first, second) < 1e-9
    assert paired_p_value(first, first) == 1.0


def test_p_values_agree_with_scipy():
    first, second = predictions(0.80, 300, 3), predictions(0.74, 300, 3, seed=1)
    expected = permutation_test(
        (first.mean(0), second.mean(0)),
        lambda a, b, axis: a.mean(axis) - b.mean(axis),
        permutation_type="samples",
        n_resamples=9999,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    assert paired_p_value(first, second) == pytest.approx(expected.pvalue, abs=0.015)


def test_small_p_values_are_rare_under_the_null_hypothesis():
    values = [
        paired_p_value(
            predictions(0.7, 80, seed=2 * k), predictions(0.7, 80, seed=2 * k + 1)
        )
        for k in range(200)
    ]
    assert np.mean(np.array(values) <= 0.1) < 0.16
    assert np.mean(np.array(values) <= 0.5) > 0.35


def test_p_values_are_symmetric():
    first, second = predictions(0.8, 100), predictions(0.7, 100, seed=1)
    assert paired_p_value(first, second) == paired_p_value(second, first)
