"""Pickles and copies of the estimators."""

import copy
import pickle
import pickletools

import joblib
import numpy as np
import pytest
import torch
from perron_tests.opinions import QUICK, opinions

from perron.errors import DataError
from perron.migrations import current_version
from perron.sklearn import CentralityClassifier, CentralityVectorizer

TEXTS, LABELS = opinions(40)
PLAIN = (str, bytes, int, float, bool, type(None))


@pytest.fixture(scope="module")
def fitted():
    model = CentralityClassifier(**QUICK | {"max_iter": 2, "encoder": "bilstm"})
    return model.fit(TEXTS, LABELS)


def leaves(value):
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


@pytest.mark.parametrize("kind", [CentralityClassifier, CentralityVectorizer])
def test_the_state_contains_only_plain_data(kind, fitted):
    state = kind(**QUICK).set_params(max_iter=1).fit(TEXTS, LABELS).__getstate__()
    for leaf in leaves(state):
        assert type(leaf) in PLAIN or type(leaf) is np.ndarray, leaf
        if isinstance(leaf, np.ndarray):
            assert leaf.dtype != object
    assert set(state["pipeline_"]["files"]) == {
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }
    assert b"torch" not in pickle.dumps(fitted)


def test_a_pickle_contains_the_files_of_a_model_folder(fitted, tmp_path):
    fitted.pipeline_.save_pretrained(tmp_path)
    files = fitted.__getstate__()["pipeline_"]["files"]
    assert files == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_pickle_stores_the_public_module_and_the_format_version(fitted):
    content = pickle.dumps(fitted)
    modules = {
        argument.split()[0]
        for code, argument, _ in pickletools.genops(pickle.dumps(fitted, protocol=2))
        if code.name == "GLOBAL"
    }
    assert {name for name in modules if name.startswith("perron")} == {"perron.sklearn"}
    assert fitted.__getstate__()["format_version"] == current_version("pickle")
    assert not hasattr(pickle.loads(content), "format_version")


def test_a_pickle_of_a_newer_version_is_refused(fitted):
    state = fitted.__getstate__() | {"format_version": current_version("pickle") + 1}
    with pytest.raises(DataError, match=r"newer version of Perron .*Upgrade"):
        CentralityClassifier().__setstate__(state)


@pytest.mark.parametrize(
    "make_copy",
    [
        lambda model, folder: pickle.loads(pickle.dumps(model)),
        lambda model, folder: copy.deepcopy(model),
        lambda model, folder: joblib.load(joblib.dump(model, folder / "model")[0]),
    ],
    ids=["pickle", "deepcopy", "joblib"],
)
def test_a_copy_predicts_the_same(fitted, make_copy, tmp_path):
    rng = torch.get_rng_state()
    copied = make_copy(fitted, tmp_path)
    assert torch.equal(torch.get_rng_state(), rng)
    assert copied.get_params() == fitted.get_params()
    assert (copied.predict_proba(TEXTS) == fitted.predict_proba(TEXTS)).all()
    assert copied.loss_curve_ == fitted.loss_curve_
    assert copied.vocabulary_ == fitted.vocabulary_
    actual, expected = (m.pipeline_.explain(TEXTS[0]) for m in (copied, fitted))
    assert actual.words[0].weights == expected.words[0].weights


def test_an_unfitted_estimator_can_be_pickled():
    model = CentralityVectorizer(num_heads=3)
    assert pickle.loads(pickle.dumps(model)).get_params() == model.get_params()


def test_training_a_copy_does_not_change_the_original(fitted):
    copied = copy.deepcopy(fitted).set_params(warm_start=True)
    before = fitted.predict_proba(TEXTS)
    copied.fit(TEXTS, LABELS)
    assert (fitted.predict_proba(TEXTS) == before).all()
    assert (copied.predict_proba(TEXTS) != before).any()
