from dataclasses import replace

import numpy as np
import pytest
from perron_tests.errors import mentions
from perron_tests.studies import record

from perron.errors import DataError
from perron.experiments.records import csv_rows
from perron.experiments.report import (
    MeanStd,
    format_mean_std,
    markdown,
    summarize,
)
from perron.experiments.significance import compare_accuracies
from perron.experiments.study import Study

STUDY = Study(
    title="x",
    recipe="sst2",
    grid=(("a=1",), ("a=2",)),
    seeds=2,
    reference="b",
    variants={"a": {}, "b": {}},
)
GRAPH = {"level": "words", "context_dependence": 0.25, "second_eigenvalue": 0.5}


def records():
    rng = np.random.default_rng(0)
    correct = rng.random((6, 200)) < np.array([0.5, 0.9, 0.9, 0.5, 0.6, 0.6])[:, None]
    return [
        record("a", 0, 0, 0.5, correct[0], [GRAPH]),
        record("a", 1, 0, 0.6, correct[1], [GRAPH]),
        record("a", 1, 1, 0.8, correct[2], [GRAPH | {"context_dependence": 0.35}]),
        record("b", 0, 0, 0.7, correct[3]),
        record("b", 1, 0, 0.7, correct[4]),
        record("b", 0, 1, 0.9, correct[5]),
    ]


def test_the_summary_uses_the_best_grid_point():
    runs = records()
    a, b = summarize(STUDY, runs)
    assert (a.variant, a.seeds, a.chosen) == ("a", 2, "a=2")
    assert a.dev["accuracy"] == pytest.approx((0.7, 0.1 * 2**0.5))
    tests = [runs[1].test["accuracy"], runs[2].test["accuracy"]]
    assert a.test["accuracy"].mean == pytest.approx(sum(tests) / 2)
    assert a.graphs[0] == pytest.approx((0.3, 0.5))
    assert b.chosen == "a=1"  # the first in case of a tie
    assert b.comparison is None


def test_p_values_are_relative_to_the_reference():
    runs = records()
    a, _ = summarize(STUDY, runs)
    expected = compare_accuracies(
        np.stack([runs[1].correct_mask(), runs[2].correct_mask()]),
        np.stack([runs[3].correct_mask(), runs[5].correct_mask()]),
    )
    assert a.comparison == expected
    assert expected.p_value < 0.01


def test_a_variant_with_an_incomplete_grid_has_no_row():
    runs = [run for run in records() if (run.variant, run.point) != ("a", 0)]
    assert [row.variant for row in summarize(STUDY, runs)] == ["b"]
    assert summarize(STUDY, []) == []


def test_runs_on_different_test_data_are_an_error():
    runs = records()
    runs[5] = record("b", 0, 1, 0.9, np.ones(200), test_digest="b")
    with pytest.raises(DataError, match=mentions("b", "texts")):
        summarize(STUDY, runs)


def test_runs_on_different_training_data_are_an_error():
    runs = records()
    runs[2] = replace(runs[2], data="other")
    with pytest.raises(DataError, match=mentions("data", "--out")):
        summarize(STUDY, runs)


def test_p_values_use_all_seeds_even_if_some_are_missing():
    runs = records()
    runs[5] = replace(runs[5], seed=2)
    a, b = summarize(STUDY, runs)
    assert (a.seeds, b.seeds) == (2, 2)
    assert a.comparison == summarize(STUDY, records())[0].comparison
    a, b = summarize(STUDY, runs[:5])
    assert (a.seeds, b.seeds) == (2, 1)
    difference = a.test["accuracy"].mean - b.test["accuracy"].mean
    assert a.comparison.difference == pytest.approx(difference)


def test_tables_mark_p_values_that_ignore_seeds():
    runs = records()
    text = markdown(STUDY, summarize(STUDY, runs))
    assert "for other seeds and other texts" in text
    assert "†" not in text
    single = [run for run in runs if run.seed == 0]
    text = markdown(STUDY, summarize(STUDY, single))
    assert "| < 0.001 † |" in text
    assert "† for other texts only" in text
    assert "for other seeds and other texts" not in text


def test_tables_include_results_and_their_origin():
    runs = records()
    text = markdown(STUDY, summarize(STUDY, runs))
    assert "| a | 2 | 70.0 ± 14.1 |" in text
    assert "0.30" in text
    header, *rows = csv_rows(runs)
    assert len(rows) == 6
    row = dict(zip(header, rows[1], strict=True))
    assert (row["commit"], row["data"], row["seed"]) == ("abc", "0123", "0")
    assert row["command"] == "perron train x --set a"
    assert row["context_dependence"] == "0.2500"


@pytest.mark.parametrize(
    ("metric", "mean_std", "text"),
    [
        ("accuracy", None, ""),
        ("accuracy", MeanStd(0.8126, None), "81.3"),
        ("macro_f1", MeanStd(0.8126, 0.0044), "81.3 ± 0.4"),
        ("log_loss", MeanStd(0.5, 0.01), "0.500 ± 0.010"),
        ("of another plugin", MeanStd(0.5, None), "0.500"),
    ],
)
def test_metrics_are_formatted_in_their_unit(metric, mean_std, text):
    assert format_mean_std(metric, mean_std) == text


def test_tables_include_the_metrics_that_all_seeds_have():
    runs = [
        replace(run, test=run.test | {"log_loss": 0.5 + run.seed}) for run in records()
    ]
    a, b = summarize(STUDY, runs)
    assert a.test["log_loss"].mean == b.test["log_loss"].mean == 1.0
    assert "log_loss" not in a.dev
    text = markdown(STUDY, [a, b])
    assert "| test | p | test log-loss |" in text
    assert "| 1.000 ± 0.707 |" in text
    runs[1] = replace(runs[1], test={"accuracy": 0.5})  # from an earlier version
    a, b = summarize(STUDY, runs)
    assert list(a.test) == ["accuracy"]
    assert list(b.test) == ["accuracy", "log_loss"]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 200])
def test_the_correct_mask_survives_a_round_trip(count):
    correct = np.random.default_rng(count).random(count) < 0.5
    assert record("a", 0, 0, 0.5, correct).correct_mask().tolist() == correct.tolist()
