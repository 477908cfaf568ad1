"""`CentralityClassifier`: training, prediction, parameters and weights."""

import copy

import numpy as np
import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.opinions import QUICK, opinions
from perron_tests.pipelines import small_pipeline
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

import perron
from perron.layers import ENCODERS
from perron.pooling import AGGREGATORS
from perron.sklearn import CentralityClassifier

TEXTS, LABELS = opinions()
NEW_TEXTS, NEW_LABELS = opinions(40, seed=1)
NO_NOISE = {
    "learning_rate": 0.03,
    "dropout": 0,
    "max_iter": 40,
    "early_stopping": False,
}


@pytest.fixture(scope="module")
def fitted():
    return CentralityClassifier(**QUICK).fit(TEXTS, LABELS)


def test_it_learns_a_simple_task(fitted):
    assert is_classifier(fitted)
    assert fitted.score(NEW_TEXTS, NEW_LABELS) > 0.9
    assert fitted.classes_.tolist() == ["bad", "good"]
    assert set(fitted.predict(NEW_TEXTS)) == {"bad", "good"}
    assert fitted.predict(NEW_TEXTS).dtype == fitted.classes_.dtype


def test_predict_proba_is_in_the_order_of_the_classes(fitted):
    probabilities = fitted.predict_proba(NEW_TEXTS)
    assert probabilities.shape == (40, 2)
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
    best = fitted.classes_[probabilities.argmax(1)]
    assert best.tolist() == fitted.predict(NEW_TEXTS).tolist()


@pytest.mark.parametrize(
    ("labels", "classes"),
    [([7, -2], [-2, 7]), ([True, False], [False, True]), ([1.0, 0.0], [0.0, 1.0])],
    ids=["integers", "booleans", "integral floats"],
)
def test_predictions_have_the_type_of_the_labels(labels, classes):
    y = labels * 40
    model = CentralityClassifier(**QUICK).fit(TEXTS, y)
    assert model.classes_.tolist() == classes
    assert model.predict(TEXTS).dtype == np.array(y).dtype
    assert model.score(TEXTS, y) > 0.9
    assert model.pipeline_.labels == tuple(str(name) for name in classes)


def test_empty_texts_can_be_a_third_class():
    texts = [*TEXTS, *["", "   ", "\n"] * 8]
    labels = [*LABELS, *["none"] * 24]
    model = CentralityClassifier(**QUICK).fit(texts, labels)
    assert model.classes_.tolist() == ["bad", "good", "none"]
    assert model.predict(["", "fine film", "sour"]).tolist() == ["none", "good", "bad"]


def test_random_state_determines_the_model(fitted):
    again = clone(fitted).fit(TEXTS, LABELS)
    other = clone(fitted).set_params(random_state=1).fit(TEXTS, LABELS)
    assert (again.predict_proba(NEW_TEXTS) == fitted.predict_proba(NEW_TEXTS)).all()
    assert again.loss_curve_ == fitted.loss_curve_
    assert (other.predict_proba(NEW_TEXTS) != fitted.predict_proba(NEW_TEXTS)).any()
    seeded = clone(fitted).set_params(random_state=np.random.RandomState(3))
    first, second = (seeded.fit(TEXTS, LABELS).loss_curve_ for _ in range(2))
    assert first != second  # a RandomState instance advances


def test_fit_changes_no_global_state_and_writes_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    threads = torch.get_num_threads()
    copy.deepcopy(CentralityClassifier(**QUICK).fit(TEXTS, LABELS))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    assert torch.get_num_threads() == threads
    assert not list(tmp_path.iterdir())


def test_clone_copies_only_the_parameters(fitted):
    cloned = clone(fitted)
    assert cloned.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        cloned.predict(NEW_TEXTS)
    with pytest.raises(NotFittedError):
        _ = cloned.vocabulary_


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_every_aggregator_can_be_used(aggregator):
    model = CentralityClassifier(aggregator, **QUICK | {"max_iter": 1})
    model.fit(TEXTS, LABELS)
    settings = model.pipeline_.model.config.settings
    assert settings.aggregator.name == aggregator


@pytest.mark.parametrize("encoder", [*ENCODERS, {"name": "cnn", "kernel_sizes": (2,)}])
def test_every_encoder_can_be_used(encoder):
    model = CentralityClassifier(**QUICK | {"encoder": encoder, "max_iter": 1})
    settings = model.fit(TEXTS, LABELS).pipeline_.model.config.settings.encoder
    option = {"bilstm": "hidden_dim", "transformer": "hidden_dim", "cnn": "num_filters"}
    if settings.name in option:
        assert getattr(settings, option[settings.name]) == 8
    if isinstance(encoder, dict):
        assert settings.kernel_sizes == (2,)


def test_parameters_configure_the_model():
    model = CentralityClassifier(
        **QUICK
        | {"num_heads": np.int64(3), "connectivity": "bilinear", "max_iter": 1}
        | {"dropout": 0.25, "max_words": 3, "max_vocabulary": 4, "lowercase": False}
    )
    model.fit([text.title() for text in TEXTS], LABELS)
    config = model.pipeline_.model.config
    assert config.settings.aggregator.num_heads == 3
    assert config.settings.aggregator.connectivity == "bilinear"
    assert config.settings.embedding.dropout == config.settings.head.dropout == 0.25
    assert config.max_words == 3
    assert len(model.vocabulary_) == 5  # four words and the unknown word
    assert all(word.istitle() for word in list(model.vocabulary_)[1:])


def test_word_vectors_are_read_from_a_file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("fine 1 2 3\nbrilliant 4 5 6\nFine 7 8 9\n")
    model = CentralityClassifier(**QUICK, vectors=str(path)).set_params(max_iter=1)
    model.set_params(learning_rate=1e-9).fit(TEXTS, LABELS)
    rows = model.vocabulary_
    vectors = model.pipeline_.model.embedding.vectors.weight.detach()
    assert vectors.shape == (len(rows), 3)
    torch.testing.assert_close(vectors[rows["fine"]], torch.tensor([1.0, 2, 3]))
    assert "brilliant" in rows  # although no text contains it
    assert "Fine" not in rows  # texts are lowercased
    model.set_params(vector_words=0).fit(TEXTS, LABELS)
    assert "brilliant" not in model.vocabulary_


def test_sample_and_class_weights_change_the_probabilities():
    texts, labels = ["same"] * 40, ["a", "b"] * 20
    model = CentralityClassifier(**QUICK | NO_NOISE)
    weights = [9.0, 1.0] * 20
    model.fit(texts, labels, sample_weight=weights)
    assert model.predict_proba(["same"])[0, 0] == pytest.approx(0.9, abs=0.05)
    model.set_params(class_weight={"b": 4.0})
    model.fit(texts, labels)
    assert model.predict_proba(["same"])[0, 0] == pytest.approx(0.2, abs=0.05)


def test_a_text_with_zero_weight_has_no_effect(fitted):
    texts = [*TEXTS, "nowhere else"]
    labels = [*LABELS, "another class"]
    weights = [1.0] * len(TEXTS) + [0.0]
    model = clone(fitted).fit(texts, labels, sample_weight=weights)
    assert (model.predict_proba(NEW_TEXTS) == fitted.predict_proba(NEW_TEXTS)).all()


def test_balanced_class_weights_give_equal_probabilities():
    texts, labels = ["same"] * 40, ["rare"] * 4 + ["common"] * 36
    model = CentralityClassifier(**QUICK | NO_NOISE, class_weight="balanced")
    model.fit(texts, labels)
    assert model.predict_proba(["same"])[0, 0] == pytest.approx(0.5, abs=0.05)


def test_verbose_prints_one_line_per_epoch(capsys):
    model = CentralityClassifier(**QUICK, verbose=True).fit(TEXTS, LABELS)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_iter_
    assert lines[0].startswith("Iteration 1, loss = 0.")
    assert "validation score" in lines[0]


def test_the_pipeline_can_explain_and_be_saved(fitted, tmp_path):
    record = fitted.pipeline_.explain("a fine film")
    assert record.label == "good"
    assert len(record.words[0].weights) == 3
    fitted.pipeline_.save_pretrained(tmp_path)
    loaded = perron.load(tmp_path)
    assert (loaded.predict_proba(NEW_TEXTS) == fitted.predict_proba(NEW_TEXTS)).all()


class TestFromASavedModel:
    @pytest.fixture
    def folder(self, tmp_path):
        """A model whose labels are not sorted."""
        pipeline = small_pipeline("text", encoder="none")
        config = pipeline.model.config
        names = {"labels": ("good", "bad", "poor")}
        pipeline.model.config = config.model_copy(update=names)
        pipeline.save_pretrained(tmp_path)
        return tmp_path

    def test_training_starts_from_its_vocabulary_and_weights(self, folder):
        texts = ["good film", "bad film", "it was not"] * 10
        labels = ["good", "bad", "poor"] * 10
        model = CentralityClassifier(model=folder, learning_rate=1e-12, max_iter=1)
        model.fit(texts, labels)
        before = perron.load(folder)
        assert list(model.vocabulary_) == before.processor.tokenizer.words
        # The estimator sorts the classes, and the model keeps its own order.
        assert model.classes_.tolist() == ["bad", "good", "poor"]
        assert model.pipeline_.labels == ("good", "bad", "poor")
        expected = before.predict_proba(texts)[:, [1, 0, 2]]
        np.testing.assert_allclose(model.predict_proba(texts), expected, atol=1e-6)
        assert model.predict(texts).tolist() == before.predict(texts)
        model.set_params(learning_rate=0.03, max_iter=30, early_stopping=False)
        assert model.fit(texts, labels).score(texts, labels) > 0.9

    def test_different_classes_are_refused(self, folder):
        model = CentralityClassifier(model=folder)
        classes = ("good, bad, poor", "bad, good")
        with pytest.raises(ValueError, match=mentions(*classes)):
            model.fit(TEXTS, LABELS)

    def test_a_pair_model_is_refused(self, tmp_path):
        small_pipeline("pair").save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=mentions("model", tmp_path, "pairs")):
            CentralityClassifier(model=tmp_path).fit(TEXTS, LABELS)
