import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from perron_tests.errors import mentions
from scipy import stats

from perron.experiments.significance import compare_accuracies

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "significance.py"


@pytest.fixture(scope="module")
def simulation():
    """Load the simulator of studies from the benchmark."""
    spec = importlib.util.spec_from_file_location("significance_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for dataclasses
    spec.loader.exec_module(module)
    return module


def predictions(rate: float, count: int, runs: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((runs, count)) < rate


def shifted(accuracies, count: int, seed: int = 0) -> np.ndarray:
    """Return runs of different accuracies that share easy and difficult examples."""
    rng = np.random.default_rng(seed)
    difficulty = 0.9 * rng.random(count) + 0.1 * rng.random((len(accuracies), count))
    return difficulty < np.array(accuracies)[:, None]


def variance_by_loops(first, second):
    """Compute the variance of the difference from two-way tables, cell by cell."""
    n = len(first[0])
    total = 0.0
    differences = [
        sum(run[i] for run in first) / len(first)
        - sum(run[i] for run in second) / len(second)
        for i in range(n)
    ]
    mean = sum(differences) / n
    examples = (sum((d - mean) ** 2 for d in differences) + 1) / (n * (n - 1))
    for runs in (first, second):
        count = len(runs)
        rows = [sum(run) / n for run in runs]
        columns = [sum(run[i] for run in runs) / count for i in range(n)]
        grand = sum(rows) / count
        seeds = sum((row - grand) ** 2 for row in rows) / (count - 1)
        residual = sum(
            (float(runs[s][i]) - rows[s] - columns[i] + grand) ** 2
            for s in range(count)
            for i in range(n)
        ) / ((count - 1) * (n - 1))
        total += (seeds - residual / n) / count
    return examples + max(total, 0.0)


@pytest.mark.parametrize("runs", [(2, 2), (3, 5)])
@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_the_standard_error_matches_two_way_tables(runs, spread):
    rng = np.random.default_rng(0)
    first, second = (
        shifted(0.7 + spread * rng.normal(size=count), 40, seed=count + 1)
        for count in runs
    )
    result = compare_accuracies(first, second)
    expected = variance_by_loops(first.tolist(), second.tolist())
    assert result.standard_error**2 == pytest.approx(expected)
    assert result.difference == pytest.approx(first.mean() - second.mean())


def test_large_seed_effects_lead_to_a_t_test_of_the_accuracies():
    first = shifted([0.80, 0.74, 0.77], 100_000)
    second = shifted([0.73, 0.69, 0.72], 100_000)
    expected = stats.ttest_ind(first.mean(1), second.mean(1)).pvalue
    result = compare_accuracies(first, second)
    assert result.p_value == pytest.approx(expected, rel=0.05)
    assert result.degrees_of_freedom == pytest.approx(4, rel=0.05)


def test_runs_without_seed_effects_lead_to_a_paired_t_test_of_the_examples():
    first, second = predictions(0.80, 3000), predictions(0.78, 3000, seed=1)
    result = compare_accuracies(np.repeat(first, 3, 0), np.repeat(second, 2, 0))
    expected = stats.ttest_rel(first[0].astype(float), second[0].astype(float)).pvalue
    assert result.p_value == pytest.approx(expected, rel=0.02)
    assert result.degrees_of_freedom == pytest.approx(2999)
    assert result.covers_seeds


def test_one_run_each_leads_to_mcnemars_test():
    first, second = predictions(0.80, 200), predictions(0.74, 200, seed=1)
    result = compare_accuracies(first, second)
    wins, losses = (first & ~second).sum(), (second & ~first).sum()
    expected = stats.binomtest(wins, wins + losses).pvalue
    assert result.p_value == pytest.approx(expected)
    assert not result.covers_seeds


def test_six_examples_match_a_manual_calculation():
    # All six examples are better: two of 2**6 ways to swap them are as extreme.
    first, second = np.ones((1, 6), bool), np.zeros((1, 6), bool)
    assert compare_accuracies(first, second).p_value == pytest.approx(2 / 64)
    runs = compare_accuracies(np.repeat(first, 4, 0), np.repeat(second, 4, 0))
    assert runs.p_value == pytest.approx(2 / 64)


@pytest.mark.parametrize("count", [1, 2, 200])
@pytest.mark.parametrize("runs", [(1, 1), (1, 3), (2, 2), (3, 2)])
def test_identical_predictions_have_a_p_value_of_one(runs, count):
    correct = predictions(0.8, count)
    first, second = (np.repeat(correct, number, 0) for number in runs)
    result = compare_accuracies(first, second)
    assert result.p_value == 1.0
    low, high = result.confidence_interval()
    assert low < 0 < high


def test_variation_between_seeds_increases_the_p_value():
    second = predictions(0.70, 2000, 4, seed=1)
    steady, varied = (
        shifted(accuracies, 2000)
        for accuracies in ([0.75, 0.75, 0.75, 0.75], [0.81, 0.69, 0.80, 0.70])
    )
    p_steady, p_varied = (
        compare_accuracies(first, second).p_value for first in (steady, varied)
    )
    assert p_steady < 0.001
    assert p_varied > 0.05


def test_a_single_run_is_assumed_to_vary_like_the_runs_of_the_other_model():
    first = shifted([0.74, 0.78, 0.76], 5000)
    single = shifted([0.70], 5000, seed=1)
    alone = compare_accuracies(first, single)
    fixed = compare_accuracies(first, single, deterministic=(False, True))
    assert alone.covers_seeds
    assert fixed.covers_seeds
    variance = first.mean(1).var(ddof=1)
    added = alone.standard_error**2 - fixed.standard_error**2
    assert added == pytest.approx(variance, rel=0.1)
    assert compare_accuracies(single, first).p_value == alone.p_value


def test_deterministic_models_have_no_seeds():
    first, second = predictions(0.80, 200), predictions(0.74, 200, seed=1)
    both = compare_accuracies(first, second, deterministic=(True, True))
    assert both.covers_seeds
    assert both.p_value == compare_accuracies(first, second).p_value
    one = compare_accuracies(first, second, deterministic=(True, False))
    assert not one.covers_seeds


@pytest.mark.parametrize("runs", [(1, 1), (2, 2), (3, 5)])
def test_p_values_are_symmetric(runs):
    first = predictions(0.8, 100, runs[0])
    second = predictions(0.7, 100, runs[1], seed=1)
    one, other = (
        compare_accuracies(first, second),
        compare_accuracies(second, first),
    )
    assert one.p_value == pytest.approx(other.p_value)
    assert one.difference == pytest.approx(-other.difference)


def test_the_confidence_interval_agrees_with_the_p_value():
    first, second = (
        predictions(0.78, 1000, 3),
        predictions(0.75, 1000, 3, seed=1),
    )
    result = compare_accuracies(first, second)
    edge = result.confidence_interval(1 - result.p_value)
    assert min(map(abs, edge)) == pytest.approx(0, abs=1e-9)


def test_non_inferiority_depends_on_the_margin():
    first, second = (
        predictions(0.80, 4000, 3),
        predictions(0.80, 4000, 3, seed=1),
    )
    result = compare_accuracies(first, second)
    values = [result.non_inferiority_p_value(margin) for margin in (0.001, 0.02, 0.1)]
    assert values[0] > 0.1
    assert values[2] < 0.001
    assert values == sorted(values, reverse=True)
    worst = result.confidence_interval(0.9)[0]  # a one-sided test at 5 %
    assert result.non_inferiority_p_value(-worst) == pytest.approx(0.05)


def test_invalid_arguments_are_errors():
    result = compare_accuracies(predictions(0.8, 10), predictions(0.7, 10))
    with pytest.raises(ValueError, match=mentions("margin", "-0.01")):
        result.non_inferiority_p_value(-0.01)
    with pytest.raises(ValueError, match=mentions("example", "(1, 0)")):
        compare_accuracies(predictions(0.8, 0), predictions(0.7, 0))
    with pytest.raises(ValueError, match=mentions("run", "(0, 10)")):
        compare_accuracies(np.ones((0, 10), bool), predictions(0.7, 10))


# The full table is printed by benchmarks/significance.py.
@pytest.mark.parametrize(
    ("seeds", "examples"), [((2, 2), 1000), ((3, 3), 1000), ((5, 3), 300)]
)
def test_five_percent_of_studies_without_a_difference_are_significant(
    simulation, seeds, examples
):
    scenario = simulation.Scenario(
        "large seed effects", seeds, examples, quality=0.15, preference=0.15
    )
    tests = {
        "Perron": simulation.perron_test,
        "examples only": simulation.examples_only,
    }
    rates = simulation.rejection_rates(scenario, 400, tests=tests)
    assert 0.02 < rates["Perron"] < 0.08
    assert rates["examples only"] > 0.15


def test_non_inferiority_is_claimed_in_five_percent_of_studies_at_the_margin(
    simulation,
):
    scenario = simulation.Scenario("", (5, 5), 1000)
    rng = np.random.default_rng(0)
    values = [
        compare_accuracies(
            *simulation.simulate(scenario, rng, -0.02)
        ).non_inferiority_p_value(0.02)
        for _ in range(400)
    ]
    assert 0.02 < np.mean(np.array(values) < 0.05) < 0.08


def test_real_differences_are_found(simulation):
    scenario = simulation.Scenario("typical", (5, 5), 2000)
    tests = {"Perron": simulation.perron_test}
    assert simulation.rejection_rates(scenario, 100, 0.03, tests)["Perron"] > 0.9
