"""`CentralityClassifier` with a pretrained encoder."""

import pickle

import numpy as np
import pytest
from perron_tests.errors import mentions
from perron_tests.tiny_bert import write_tiny_bert
from sklearn.model_selection import GridSearchCV

from perron.sklearn import CentralityClassifier
from perron.training import state_cache

TEXTS = ["the film was fine", "fine film", "the film was dull", "dull film"] * 6
LABELS = [1, 1, 0, 0] * 6


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return write_tiny_bert(tmp_path_factory.mktemp("hf") / "tiny-bert")


def classifier(encoder, **options):
    settings = {"max_words": 30, "max_iter": 3, "learning_rate": 1e-2}
    return CentralityClassifier(
        encoder=encoder, random_state=0, **{**settings, **options}
    )


def test_a_pretrained_encoder_is_frozen_with_the_defaults_of_the_recipe(bert):
    model = classifier(f"hf:{bert}").fit(TEXTS, LABELS)
    settings = model.pipeline_.model.config.settings
    assert settings.encoder.freeze
    assert settings.encoder.layers == "mix"
    assert settings.head.dropout == 0.3
    assert model.predict(["the film was fine", "dull"]).tolist() == [1, 0]


def test_options_override_the_recipe(bert):
    encoder = {"name": "hf", "model": str(bert), "layers": [1]}
    model = classifier(encoder, dropout=0.1).fit(TEXTS, LABELS)
    settings = model.pipeline_.model.config.settings
    assert settings.encoder.layers == (1,)
    assert settings.encoder.dropout == 0.1
    assert settings.head.dropout == 0.1


def test_a_search_encodes_each_text_once(bert, monkeypatch):
    encoded = []
    encode = state_cache.StateCache._encode_chunk

    def counted(self, texts, *rest):
        encoded.extend(tuple(ids) for ids in texts)
        return encode(self, texts, *rest)

    monkeypatch.setattr(state_cache.StateCache, "_encode_chunk", counted)
    # Other texts than those of the other tests, which share the cache.
    texts = [f"{text} unbelievable" for text in TEXTS]
    grid = {"num_heads": [1, 2], "learning_rate": [1e-2, 3e-2]}
    GridSearchCV(classifier(f"hf:{bert}", max_iter=1), grid, cv=2).fit(texts, LABELS)
    assert len(encoded) == len(set(encoded)) == len(set(texts))


def test_auto_is_the_default_encoder(bert, monkeypatch):
    monkeypatch.setenv("PERRON_ENCODER", f"hf:{bert}")
    model = CentralityClassifier(max_words=30, max_iter=1).fit(TEXTS, LABELS)
    assert model.pipeline_.model.config.settings.encoder.name == "hf"


def test_word_vectors_are_not_combined_with_a_pretrained_encoder(bert, monkeypatch):
    with pytest.raises(ValueError, match=mentions("vectors", "glove.txt")):
        classifier(f"hf:{bert}", vectors="glove.txt").fit(TEXTS, LABELS)
    monkeypatch.setenv("PERRON_ENCODER", f"hf:{bert}")
    with pytest.raises(Exception, match=mentions("glove.txt")):  # it is read
        classifier("auto", vectors="glove.txt").fit(TEXTS, LABELS)


def test_a_fitted_classifier_predicts_the_same_after_pickling(bert):
    model = classifier(f"hf:{bert}", max_iter=1).fit(TEXTS, LABELS)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(TEXTS), model.predict_proba(TEXTS))
