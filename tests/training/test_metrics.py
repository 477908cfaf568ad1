"""Metrics compared with scikit-learn, and custom metrics in the files of a run."""

import json

import numpy as np
import pytest
import sklearn.metrics
from huggingface_hub import ModelCard
from perron_tests.errors import mentions
from perron_tests.training import tiny_table, write_texts

from perron.errors import SettingsError
from perron.training import read_recipe, train
from perron.training.metrics import METRICS, Evaluation, Metric, format_metrics


@pytest.fixture(params=["unweighted", "weighted"])
def evaluation(request):
    rng = np.random.default_rng(0)
    log_probabilities = np.log(rng.dirichlet(np.ones(4), 50))
    labels = rng.integers(0, 3, 50)  # the last class never occurs
    weights = rng.random(50) if request.param == "weighted" else None
    return Evaluation(labels, log_probabilities, weights)


def test_metrics_match_scikit_learn(evaluation):
    labels = (evaluation.labels, evaluation.predicted)
    weights = {"sample_weight": evaluation.weights}
    assert evaluation.metrics == pytest.approx(
        {
            "accuracy": sklearn.metrics.accuracy_score(*labels, **weights),
            "macro_f1": sklearn.metrics.f1_score(*labels, average="macro", **weights),
            "log_loss": sklearn.metrics.log_loss(
                evaluation.labels,
                evaluation.probabilities,
                labels=range(4),
                **weights,
            ),
        }
    )
    expected = sklearn.metrics.confusion_matrix(*labels, labels=range(4), **weights)
    np.testing.assert_allclose(evaluation.confusion, expected)


def test_an_absent_class_does_not_lower_macro_f1():
    log_probabilities = np.log([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])
    evaluation = Evaluation(np.array([0, 1]), log_probabilities)
    assert evaluation.metrics["macro_f1"] == 1.0
    assert evaluation.confusion.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_metrics_are_formatted_for_display():
    values = {"accuracy": 0.9125, "log_loss": 0.5, "not_registered": 3.25}
    text = "accuracy 91.25 %, log-loss 0.5000, not registered 3.25"
    assert format_metrics(values) == text


@pytest.fixture
def brier():
    class Brier(Metric):
        recipe_name = "brier_score"
        greater_is_better = False
        in_percent = False

        def compute(self, evaluation):
            expected = np.eye(evaluation.probabilities.shape[1])[evaluation.labels]
            return ((evaluation.probabilities - expected) ** 2).sum(1).mean()

    yield Brier
    METRICS.unregister("brier_score")


def test_a_custom_metric_is_in_all_files_of_a_run(brier, tmp_path):
    table = tiny_table(write_texts(tmp_path / "texts.csv"))
    result = train(read_recipe(table, ["training.max_epochs=2"]), tmp_path / "run")
    assert 0 < result.dev["brier_score"] < 2
    assert 0 < result.test["brier_score"] < 2
    saved = json.loads((tmp_path / "run/result.json").read_text())
    assert saved["test"]["brier_score"] == result.test["brier_score"]
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    values = [json.loads(line)["dev_brier_score"] for line in lines]
    assert values[result.best_epoch] == pytest.approx(result.dev["brier_score"])
    card = (tmp_path / "run/README.md").read_text()
    assert f"| test brier score | {result.test['brier_score']:.4f} |" in card
    results = {
        (r.dataset_split, r.metric_type) for r in ModelCard(card).data.eval_results
    }
    assert ("test", "brier_score") in results


def test_two_metrics_cannot_have_the_same_name():
    with pytest.raises(ValueError, match=mentions("'accuracy'", "Other")):

        class Other(Metric):
            recipe_name = "accuracy"

            def compute(self, evaluation):
                return 0.0


def test_the_error_for_an_unknown_metric_lists_the_known_ones():
    known = ("accuracy", "macro_f1", "log_loss")
    with pytest.raises(SettingsError, match=mentions(*known, "'f1'")):
        METRICS["f1"]
