"""Metrics compared with scikit-learn, and custom metrics in the files of a run."""

import json

import numpy as np
import pytest
import sklearn.metrics
from huggingface_hub import ModelCard
from perron_tests.errors import mentions
from perron_tests.training import tiny_table, write_texts

import perron
from perron.errors import SettingsError
from perron.training import read_recipe, train
from perron.training.callbacks import draw_confusion, read_metrics
from perron.training.metrics import (
    METRICS,
    Evaluation,
    Metric,
    fit_temperature,
    format_metrics,
)
from perron.training.prepare import prepare
from perron.training.recipe import TrainingSettings


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
    metrics = dict(evaluation.metrics)
    del metrics["calibration_error"]  # not in scikit-learn
    assert metrics == pytest.approx(
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


def test_the_calibration_error_matches_a_plain_loop(evaluation):
    weights = evaluation.weights
    weights = np.ones(50) if weights is None else weights
    confidence = evaluation.probabilities.max(1)
    total = 0.0
    for low in np.arange(15) / 15:
        rows = (confidence >= low) & (confidence < low + 1 / 15)
        if rows.any():
            shares = weights[rows]
            accuracy = np.average(evaluation.correct[rows], weights=shares)
            mean = np.average(confidence[rows], weights=shares)
            total += shares.sum() / weights.sum() * abs(accuracy - mean)
    assert evaluation.metrics["calibration_error"] == pytest.approx(total)


def test_certain_and_correct_predictions_have_no_calibration_error():
    log_probabilities = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    evaluation = Evaluation(np.array([0, 1]), log_probabilities)
    assert evaluation.metrics["calibration_error"] == 0


class TestTemperature:
    def sample(self, temperature, rows=4000, weights=None):
        """Return predictions whose probabilities are right after scaling."""
        rng = np.random.default_rng(0)
        logits = rng.normal(0, 2, (rows, 3))
        noise = rng.gumbel(size=logits.shape)
        labels = (logits + noise).argmax(1)
        logits = logits * temperature
        logits -= np.logaddexp.reduce(logits, 1)[:, None]
        return Evaluation(labels, logits, weights)

    @pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
    def test_the_temperature_of_the_data_is_found(self, temperature):
        found = fit_temperature(self.sample(temperature))
        assert found == pytest.approx(temperature, rel=0.05)

    def test_texts_with_weight_zero_do_not_matter(self):
        sharp, flat = self.sample(3.0), self.sample(0.5)
        both = Evaluation(
            np.concatenate([sharp.labels, flat.labels]),
            np.concatenate([sharp.log_probabilities, flat.log_probabilities]),
            np.repeat([1.0, 0.0], 4000),
        )
        assert fit_temperature(both) == pytest.approx(fit_temperature(sharp))

    def test_a_few_correct_predictions_do_not_make_the_model_certain(self):
        log_probabilities = np.log([[0.8, 0.2]] * 5)
        evaluation = Evaluation(np.zeros(5, int), log_probabilities)
        assert 0.5 < fit_temperature(evaluation) < 1


@pytest.mark.parametrize("name", ["confusion.png", "confusion.svg"])
@pytest.mark.parametrize("classes", [2, 40])
def test_a_confusion_matrix_is_drawn(name, classes, tmp_path):
    labels = [f"class {number}" for number in range(classes)]
    draw_confusion(labels, np.eye(classes, dtype=int).tolist(), tmp_path / name)
    start = (tmp_path / name).read_bytes()[:8]
    assert start == (b"\x89PNG\r\n\x1a\n" if name.endswith("png") else b"<?xml ve")


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


def uneven_table(tmp_path):
    """Return settings for 80 texts of one class and 40 of the other."""
    path = write_texts(tmp_path / "texts.csv", rows=160)
    lines = path.read_text().splitlines()
    rare = [line for line in lines if line.endswith("good")][:40]
    common = [line for line in lines if line.endswith("bad")]
    path.write_text("\n".join([lines[0], *common, *rare]) + "\n")
    return tiny_table(path)


@pytest.mark.parametrize(
    ("class_weight", "ratio"), [("balanced", 2.0), ({"good": 5.0}, 5.0)]
)
def test_classes_are_weighted_in_the_training_loss(class_weight, ratio, tmp_path):
    table = uneven_table(tmp_path)
    table["training"] |= {"class_weight": class_weight}
    run = prepare(read_recipe(table))
    good = run.splits.labels.index("good")
    weights, labels = run.train.weights, run.train.labels
    assert weights.mean() == pytest.approx(1)
    expected = weights[labels == good][0] / weights[labels != good][0]
    assert expected == pytest.approx(ratio)
    assert run.dev.weights is None


def test_a_weight_for_an_unknown_class_is_an_error(tmp_path):
    table = uneven_table(tmp_path)
    table["training"] |= {"class_weight": {"gud": 2.0}}
    with pytest.raises(SettingsError, match=mentions("class_weight", "'gud'", "good")):
        prepare(read_recipe(table))


@pytest.mark.parametrize(
    ("name", "metric"),
    [("loss", "log_loss"), ("macro-f1", "macro_f1"), ("accuracy", "accuracy")],
)
def test_a_metric_may_be_named_as_on_the_command_line(name, metric):
    assert TrainingSettings(metric_for_best_model=name).metric_for_best_model == metric


def test_a_fitted_temperature_changes_probabilities_but_not_labels(tmp_path):
    table = tiny_table(write_texts(tmp_path / "texts.csv"))
    plain = train(read_recipe(table), tmp_path / "plain")
    table["training"]["calibrate"] = True
    result = train(read_recipe(table), tmp_path / "calibrated")
    assert result.dev["log_loss"] < plain.dev["log_loss"]
    assert result.confusion == plain.confusion
    before, after = (
        perron.load(tmp_path / "plain"),
        perron.load(tmp_path / "calibrated"),
    )
    temperature = after.model.config.temperature
    assert temperature != 1
    texts = ["a fine day", "the dull film", "some sour day"]
    expected = before.predict_proba(texts) ** (1 / temperature)
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(after.predict_proba(texts), expected, rtol=1e-4)
    assert after.predict(texts) == before.predict(texts)
    copied = perron.Pipeline.from_files(after.to_files())
    np.testing.assert_array_equal(
        copied.predict_proba(texts), after.predict_proba(texts)
    )
    explained = after.explain(texts[0]).probabilities
    np.testing.assert_allclose(
        [explained[label] for label in after.labels],
        after.predict_proba(texts[0]),
        rtol=1e-5,
    )
    records = read_metrics(tmp_path / "calibrated")
    best = records[result.best_epoch]
    assert best["dev_log_loss"] == pytest.approx(plain.dev["log_loss"])
    assert (
        f"{temperature:.3f}, fitted on dev"
        in (tmp_path / "calibrated/README.md").read_text()
    )
