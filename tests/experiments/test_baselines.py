"""Baselines of studies, on synthetic texts, tiny pairs and a tiny encoder."""

import numpy as np
import pytest
import tomli_w
from perron_tests.errors import mentions
from perron_tests.studies import record
from perron_tests.tiny_bert import write_tiny_bert
from perron_tests.training import tiny_table, write_texts
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from perron.errors import DataError, SettingsError
from perron.experiments import read_study, run_study
from perron.experiments.baselines import (
    describe_wins,
    fit_baseline,
    mean_recipe,
    mean_vectors,
)
from perron.experiments.report import markdown, summarize
from perron.experiments.study import Study, Trial
from perron.text.datasets import load_data
from perron.training import Recipe
from perron.training.prepare import prepare


@pytest.fixture
def recipe(tmp_path) -> Recipe:
    return Recipe.model_validate(tiny_table(write_texts(tmp_path / "texts.csv", 200)))


def write_vectors(path):
    """Write vectors whose first component is the sentiment of the word."""
    words = {"fine": 1, "lovely": 1, "bright": 1, "warm": 1, "film": 0, "was": 0}
    words |= {"dull": -1, "gray": -1, "cold": -1, "sour": -1, "the": 0}
    lines = [f"{word} {value} 0.5 0.25" for word, value in words.items()]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_tfidf_learns_which_words_matter(recipe):
    result = fit_baseline("tfidf", recipe)
    assert result.test.metrics["accuracy"] == 1.0
    assert set(result.test.metrics) >= {"accuracy", "macro_f1", "log_loss"}
    assert result.seconds > 0
    again = fit_baseline("tfidf", recipe)
    np.testing.assert_array_equal(
        again.test.log_probabilities, result.test.log_probabilities
    )


def test_tfidf_matches_scikit_learn(recipe):
    result = fit_baseline("tfidf", recipe)
    splits = load_data(recipe.data)
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2),
        sublinear_tf=True,
        token_pattern=r"\w+|[^\w\s]",
        dtype=np.float32,
    )
    features = vectorizer.fit_transform(splits.train["text"])
    model = LogisticRegression(C=result.strength, max_iter=500)
    model.fit(features, splits.train["label"])
    expected = model.predict_log_proba(vectorizer.transform(splits.test["text"]))
    np.testing.assert_allclose(result.test.log_probabilities, expected, atol=1e-3)
    assert result.parameters == len(vectorizer.vocabulary_) + 1


def test_the_regularization_is_chosen_on_dev_data(recipe):
    training = recipe.training.model_copy(update={"metric_for_best_model": "log_loss"})
    by_loss = fit_baseline("tfidf", recipe.model_copy(update={"training": training}))
    assert by_loss.strength == 100.0  # the words determine the class


def test_means_are_those_of_the_word_vectors(recipe, tmp_path):
    vectors = write_vectors(tmp_path / "vectors.txt")
    recipe = recipe.model_copy(update={"vectors": (vectors,)})
    assert fit_baseline("mean", recipe).test.metrics["accuracy"] >= 0.9
    prepared = prepare(mean_recipe(recipe))
    assert prepared.recipe.model.encoder.name == "none"
    means = mean_vectors(prepared.model, prepared.test)
    weights = prepared.model.embedding.vectors.weight.detach().numpy()
    for row in range(len(prepared.test)):
        ids = prepared.test.batch([row]).inputs["ids"].numpy()
        np.testing.assert_allclose(means[row], weights[ids].mean(0), atol=1e-6)


@pytest.mark.parametrize("freeze", [False, True])
def test_means_of_a_pretrained_encoder_are_those_of_its_frozen_states(
    recipe, tmp_path, freeze
):
    folder = write_tiny_bert(tmp_path / "bert")
    table = recipe.model_dump(mode="json")
    table["model"]["encoder"] = {"name": "hf", "model": str(folder), "freeze": freeze}
    table["training"]["cache_dtype"] = "none"
    table["text"]["max_words"] = 30
    recipe = Recipe.model_validate(table)
    result = fit_baseline("mean", recipe)
    assert result.parameters == 1 + prepare(mean_recipe(recipe)).model.vector_dim
    assert mean_recipe(recipe).model.encoder.freeze
    assert result.test.metrics["accuracy"] > 0.5


def write_pairs(path):
    rng = np.random.default_rng(0)
    names = np.array(["film", "day", "dull", "fine", "warm", "cold"])
    lines = ["text,other,label"]
    for row in range(240):
        first = rng.choice(names, 2, replace=False)
        second = first if row % 2 else rng.choice(np.setdiff1d(names, first), 2)
        label = "same" if row % 2 else "different"
        lines.append(f"{' '.join(first)},{' '.join(second)},{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_pairs_have_features_of_both_texts(tmp_path):
    table = tiny_table(write_pairs(tmp_path / "pairs.csv"))
    table["data"]["text_pair"] = "other"
    table["model"]["kind"] = "pair"
    table["vectors"] = [write_vectors(tmp_path / "vectors.txt")]
    recipe = Recipe.model_validate(table)
    mean = fit_baseline("mean", recipe)
    assert mean.test.metrics["accuracy"] > 0.7  # |u - v| is zero for equal texts
    assert mean.parameters == 4 * 3 + 1
    tfidf = fit_baseline("tfidf", recipe)
    splits = load_data(recipe.data)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2))
    vectorizer.fit([*splits.train["text"], *splits.train["pair"]])
    assert tfidf.parameters == 2 * len(vectorizer.vocabulary_) + 1


def test_documents_are_supported(recipe):
    model = recipe.model.model_copy(update={"kind": "document"})
    recipe = recipe.model_copy(update={"model": model})
    assert fit_baseline("tfidf", recipe).test.metrics["accuracy"] == 1.0


def test_classes_without_training_texts_are_supported(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + "good,a\nbad,b\nother,c\n" * 20)
    table = tiny_table(path)
    table["data"] |= {"max_train_rows": 2, "split": [0.8, 0.2, 0.0]}
    recipe = Recipe.model_validate(table)
    assert len(set(load_data(recipe.data).train["label"])) == 2
    result = fit_baseline("tfidf", recipe)
    assert result.test is None
    assert result.dev.metrics["accuracy"] == pytest.approx(2 / 3)
    assert 5 < result.dev.metrics["log_loss"] < 30


def test_class_weights_are_those_of_the_recipe(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + "it,rare\n" * 20 + "it,frequent\n" * 80)
    table = tiny_table(path)
    predictions = []
    for weight in (None, {"rare": 100.0}):
        table["training"]["class_weight"] = weight
        recipe = Recipe.model_validate(table)
        predicted = fit_baseline("tfidf", recipe).test.predicted[0]
        predictions.append(load_data(recipe.data).labels[predicted])
    assert predictions == ["frequent", "rare"]


def test_training_texts_of_a_single_class_are_an_error(tmp_path):
    table = tiny_table(write_texts(tmp_path / "texts.csv"))
    table["data"]["max_train_rows"] = 1
    with pytest.raises(DataError, match=mentions("tfidf", "two classes")):
        fit_baseline("tfidf", Recipe.model_validate(table))


def test_means_need_vectors_or_an_encoder(recipe):
    with pytest.raises(SettingsError, match=mentions("mean", "--vectors", "hf:")):
        fit_baseline("mean", recipe)


def write_study(tmp_path, **changes):
    table = tiny_table(write_texts(tmp_path / "texts.csv", 100))
    table["training"]["max_epochs"] = 1
    (tmp_path / "recipe.toml").write_text(tomli_w.dumps(table))
    study = {
        "title": "tiny",
        "recipe": str(tmp_path / "recipe.toml"),
        "grid": [["training.learning_rate=0.02"], ["training.learning_rate=0.01"]],
        "seeds": 2,
        "variants": {
            "max": {"set": ["model.aggregator=max"]},
            "words": {"baseline": "tfidf"},
        },
        **changes,
    }
    (tmp_path / "study.toml").write_text(tomli_w.dumps(study))
    return str(tmp_path / "study.toml")


def test_a_baseline_is_one_run_of_a_study(tmp_path):
    study = read_study(write_study(tmp_path), seeds=3)
    assert study.num_runs == 2 + 2 + 1
    records = run_study(study, tmp_path / "runs")
    assert len(records) == study.num_runs
    own = [each for each in records if each.variant == "words"]
    assert len(own) == 1
    assert own[0].command == Trial(study, "words", 0, 0).command
    assert own[0].command.endswith("--aggregators '' --baselines tfidf")
    assert own[0].correct_mask().mean() == own[0].test["accuracy"]
    path = tmp_path / "runs" / "words-point0-seed0" / "record.json"
    before = path.stat().st_mtime_ns
    assert run_study(study, tmp_path / "runs") == records
    assert path.stat().st_mtime_ns == before

    model, baseline = summarize(study, records)
    assert baseline.comparison.covers_seeds
    assert baseline.epoch_seconds is None
    assert model.run_seconds > model.epoch_seconds / 2
    text = markdown(study, [model, baseline])
    assert "words is logistic regression on TF-IDF" in text
    assert "| s/run |" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"variants": {"a": {"baseline": "tfidf", "seeds": 2}}}, ["seeds"]),
        ({"variants": {"a": {"baseline": "bm25"}}}, ["baseline", "tfidf"]),
        ({"speed_reference": "words"}, ["speed_reference", "words"]),
    ],
)
def test_invalid_baselines_are_errors(tmp_path, changes, words):
    with pytest.raises(SettingsError, match=mentions(*words)):
        read_study(write_study(tmp_path, **changes))


WINS = Study(
    title="x",
    recipe="sst2",
    seeds=2,
    variants={"a": {}, "b": {}, "words": {"baseline": "tfidf"}},
)


def accuracy_records(a, b, words, count=1000):
    difficulty = np.random.default_rng(0).permutation(count) / count
    return [
        *(record("a", 0, seed, 0.5, difficulty < a) for seed in (0, 1)),
        *(record("b", 0, seed, 0.5, difficulty < b) for seed in (0, 1)),
        record("words", 0, 0, 0.5, difficulty < words),
    ]


def test_a_baseline_that_wins_is_reported():
    (sentence,) = describe_wins(WINS, accuracy_records(0.70, 0.799, 0.80))
    assert sentence == (
        "The baseline words (80.0 % test accuracy) is ahead of a (70.0 %, p < 0.001), "
        "b (79.9 %, p = 1.000, not significant)."
    )
    (sentence,) = describe_wins(WINS, accuracy_records(0.70, 0.81, 0.80))
    assert "ahead of a (70.0 %, p < 0.001)." in sentence
    assert describe_wins(WINS, accuracy_records(0.9, 0.81, 0.80)) == []
