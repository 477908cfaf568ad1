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
NEW, ANSWERS = opinions(40, seed=1)
STEADY = {"learning_rate": 0.03, "dropout": 0, "max_iter": 40, "early_stopping": False}


@pytest.fixture(scope="module")
def fitted():
    return CentralityClassifier(**QUICK).fit(TEXTS, LABELS)


def test_it_learns_what_can_be_learned(fitted):
    assert is_classifier(fitted)
    assert fitted.score(NEW, ANSWERS) > 0.9
    assert fitted.classes_.tolist() == ["bad", "good"]
    assert set(fitted.predict(NEW)) == {"bad", "good"}
    assert fitted.predict(NEW).dtype == fitted.classes_.dtype


def test_probabilities_are_those_of_the_classes(fitted):
    found = fitted.predict_proba(NEW)
    assert found.shape == (40, 2)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    assert fitted.classes_[found.argmax(1)].tolist() == fitted.predict(NEW).tolist()


@pytest.mark.parametrize(
    ("labels", "classes"),
    [([7, -2], [-2, 7]), ([True, False], [False, True]), ([1.0, 0.0], [0.0, 1.0])],
    ids=["whole numbers", "booleans", "floats that are whole"],
)
def test_labels_come_back_as_they_were(labels, classes):
    given = labels * 40
    model = CentralityClassifier(**QUICK).fit(TEXTS, given)
    assert model.classes_.tolist() == classes
    found = model.predict(TEXTS)
    assert found.dtype == np.array(given).dtype
    assert model.score(TEXTS, given) > 0.9
    assert model.pipeline_.labels == tuple(str(name) for name in classes)


def test_three_classes_and_a_text_without_words():
    texts = [*TEXTS, *["", "   ", "\n"] * 8]
    labels = [*LABELS, *["none"] * 24]
    model = CentralityClassifier(**QUICK).fit(texts, labels)
    assert model.classes_.tolist() == ["bad", "good", "none"]
    assert model.predict(["", "fine film", "sour"]).tolist() == ["none", "good", "bad"]


def test_the_same_state_gives_the_same_model_and_another_another(fitted):
    again = clone(fitted).fit(TEXTS, LABELS)
    other = clone(fitted).set_params(random_state=1).fit(TEXTS, LABELS)
    assert (again.predict_proba(NEW) == fitted.predict_proba(NEW)).all()
    assert again.loss_curve_ == fitted.loss_curve_
    assert (other.predict_proba(NEW) != fitted.predict_proba(NEW)).any()
    seeded = clone(fitted).set_params(random_state=np.random.RandomState(3))
    first, second = (seeded.fit(TEXTS, LABELS).loss_curve_ for _ in range(2))
    assert first != second  # a generator goes on


def test_nothing_global_is_left_behind(tmp_path, monkeypatch):
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


def test_clone_copies_parameters_and_nothing_learned(fitted):
    cloned = clone(fitted)
    assert cloned.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        cloned.predict(NEW)
    with pytest.raises(NotFittedError):
        _ = cloned.vocabulary_


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_every_aggregator_can_be_had(aggregator):
    model = CentralityClassifier(aggregator, **QUICK | {"max_iter": 1})
    model.fit(TEXTS, LABELS)
    settings = model.pipeline_.model.config.settings
    assert settings.aggregator.name == aggregator


@pytest.mark.parametrize("encoder", [*ENCODERS, {"name": "cnn", "kernel_sizes": (2,)}])
def test_every_encoder_can_be_had(encoder):
    model = CentralityClassifier(**QUICK | {"encoder": encoder, "max_iter": 1})
    settings = model.fit(TEXTS, LABELS).pipeline_.model.config.settings.encoder
    size = {"bilstm": "hidden_dim", "transformer": "hidden_dim", "cnn": "num_filters"}
    if settings.name in size:
        assert getattr(settings, size[settings.name]) == 8
    if isinstance(encoder, dict):
        assert settings.kernel_sizes == (2,)


def test_parameters_reach_the_model():
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
    assert len(model.vocabulary_) == 5  # four, and the unknown word
    assert all(word.istitle() for word in list(model.vocabulary_)[1:])


def test_word_vectors_can_be_given(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("fine 1 2 3\nbrilliant 4 5 6\nFine 7 8 9\n")
    model = CentralityClassifier(**QUICK, vectors=str(path)).set_params(max_iter=1)
    model.set_params(learning_rate=1e-9).fit(TEXTS, LABELS)
    rows = model.vocabulary_
    vectors = model.pipeline_.model.embedding.vectors.weight.detach()
    assert vectors.shape == (len(rows), 3)
    torch.testing.assert_close(vectors[rows["fine"]], torch.tensor([1.0, 2, 3]))
    assert "brilliant" in rows  # though no text has it
    assert "Fine" not in rows  # texts are lower-cased
    none = model.set_params(vector_words=0).fit(TEXTS, LABELS)
    assert "brilliant" not in none.vocabulary_


def test_weights_of_texts_count():
    texts, labels = ["same"] * 40, ["a", "b"] * 20
    model = CentralityClassifier(**QUICK | STEADY)
    weights = [9.0, 1.0] * 20
    found = model.fit(texts, labels, sample_weight=weights).predict_proba(["same"])
    assert found[0, 0] == pytest.approx(0.9, abs=0.05)
    model.set_params(class_weight={"b": 4.0})
    found = model.fit(texts, labels).predict_proba(["same"])
    assert found[0, 0] == pytest.approx(0.2, abs=0.05)


def test_a_text_of_no_weight_is_as_good_as_absent(fitted):
    texts = [*TEXTS, "nowhere else"]
    labels = [*LABELS, "another class"]
    weights = [1.0] * len(TEXTS) + [0.0]
    model = clone(fitted).fit(texts, labels, sample_weight=weights)
    assert (model.predict_proba(NEW) == fitted.predict_proba(NEW)).all()


def test_balanced_classes_count_alike():
    texts, labels = ["same"] * 40, ["rare"] * 4 + ["common"] * 36
    model = CentralityClassifier(**QUICK | STEADY, class_weight="balanced")
    found = model.fit(texts, labels).predict_proba(["same"])
    assert found[0, 0] == pytest.approx(0.5, abs=0.05)


def test_a_line_is_printed_for_each_epoch(capsys):
    model = CentralityClassifier(**QUICK, verbose=True).fit(TEXTS, LABELS)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_iter_
    assert lines[0].startswith("Iteration 1, loss = 0.")
    assert "validation score" in lines[0]


def test_the_pipeline_explains_and_is_saved(fitted, tmp_path):
    found = fitted.pipeline_.explain("a fine film")
    assert found.label == "good"
    assert len(found.words[0].weights) == 3
    fitted.pipeline_.save_pretrained(tmp_path)
    loaded = perron.load(tmp_path)
    assert (loaded.predict_proba(NEW) == fitted.predict_proba(NEW)).all()


class TestFromASavedModel:
    @pytest.fixture
    def folder(self, tmp_path):
        """A model whose labels are not in the order of the alphabet."""
        pipeline = small_pipeline("text", encoder="none")
        config = pipeline.model.config
        names = {"labels": ("good", "bad", "poor")}
        pipeline.model.config = config.model_copy(update=names)
        pipeline.save_pretrained(tmp_path)
        return tmp_path

    def test_training_goes_on_with_its_words_and_weights(self, folder):
        texts = ["good film", "bad film", "it was not"] * 10
        labels = ["good", "bad", "poor"] * 10
        model = CentralityClassifier(model=folder, learning_rate=1e-12, max_iter=1)
        model.fit(texts, labels)
        before = perron.load(folder)
        assert list(model.vocabulary_) == before.processor.tokenizer.words
        # sorted for the estimator, as they were for the model
        assert model.classes_.tolist() == ["bad", "good", "poor"]
        assert model.pipeline_.labels == ("good", "bad", "poor")
        wanted = before.predict_proba(texts)[:, [1, 0, 2]]
        np.testing.assert_allclose(model.predict_proba(texts), wanted, atol=1e-6)
        assert model.predict(texts).tolist() == before.predict(texts)
        model.set_params(learning_rate=0.03, max_iter=30, early_stopping=False)
        assert model.fit(texts, labels).score(texts, labels) > 0.9

    def test_other_classes_are_refused(self, folder):
        model = CentralityClassifier(model=folder)
        classes = ("good, bad, poor", "bad, good")
        with pytest.raises(ValueError, match=mentions(*classes)):
            model.fit(TEXTS, LABELS)

    def test_a_model_of_pairs_is_refused(self, tmp_path):
        small_pipeline("pair").save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=mentions("model", tmp_path, "pairs")):
            CentralityClassifier(model=tmp_path).fit(TEXTS, LABELS)
