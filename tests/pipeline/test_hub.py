"""Pushing models to a local hub and loading them, with the client of the Hub."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from perron_tests.errors import assert_mentions, mentions
from perron_tests.hub import small_hub
from perron_tests.pipelines import small_pipeline

import perron
from perron import Pipeline
from perron.errors import DataError
from perron.hub import hub_name

TEXT = "the film was good"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with small_hub() as running:
        running.folder = tmp_path_factory.mktemp("hub")
        small_pipeline("text").save_pretrained(running.folder / "model")
        (running.folder / "model" / "README.md").write_text("# My own card\n")
        yield running


@pytest.fixture(scope="module")
def run_python(hub):
    """Return a function that runs Python with the local hub as its hub."""

    def run(*arguments):
        environment = os.environ | {
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(hub.folder / "home"),
            "HF_TOKEN": "hf_not_a_secret",
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            cwd=hub.folder,
            env=environment,
        )

    return run


@pytest.fixture(scope="module")
def pushed(hub, run_python):
    code = "import perron; print(perron.load('model').push_to_hub('me/films'))"
    run = run_python("-c", code)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_weights_tokenizer_and_card_are_pushed(hub, pushed):
    assert f"{hub.address}/me/films" in pushed
    assert sorted(hub.models["me/films"]) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    for name, content in hub.models["me/films"].items():
        assert content == (hub.folder / "model" / name).read_bytes()


@pytest.mark.parametrize("load", ["perron.load", "Pipeline.from_pretrained"])
@pytest.mark.parametrize("name", ["hub:me/films", "me/films"])
def test_a_pushed_model_can_be_loaded(hub, pushed, run_python, load, name):
    code = (
        f"import perron; from perron import Pipeline; model = {load}({name!r})\n"
        f"print(model.name, *model.predict_proba([{TEXT!r}])[0].tolist(), model.card)"
    )
    run = run_python("-c", code)
    assert run.returncode == 0, run.stderr
    model = perron.load(hub.folder / "model")
    name, *numbers = run.stdout.split()[:4]
    assert name == "me/films"
    expected = model.predict_proba([TEXT])[0]
    # The other process may use other kernels, whose rounding errors differ.
    np.testing.assert_allclose(list(map(float, numbers)), expected, rtol=1e-5)
    assert "My own card" in run.stdout


def test_commands_accept_a_model_on_the_hub(hub, pushed, run_python):
    run = run_python("-m", "perron", "predict", "hub:me/films", TEXT)
    assert run.returncode == 0, run.stderr
    assert perron.load(hub.folder / "model").predict([TEXT])[0] in run.stdout


def test_a_missing_model_is_reported_without_a_traceback(pushed, run_python):
    run = run_python("-m", "perron", "predict", "hub:me/nothing", TEXT)
    assert run.returncode == 1
    assert_mentions(run.stderr, "hub:me/nothing", "does not exist")
    assert "Traceback" not in run.stderr


def test_pickled_weights_are_not_downloaded(hub, run_python):
    """The mixin of huggingface_hub would use them if there are no safetensors."""
    files = dict(hub.models["me/films"])
    del files["model.safetensors"]
    files["pytorch_model.bin"] = pickle.dumps({"weight": 1})
    hub.models["me/pickle"] = files
    run = run_python("-m", "perron", "predict", "hub:me/pickle", TEXT)
    assert run.returncode == 1
    assert "model.safetensors" in run.stderr
    assert not any(path.endswith("pytorch_model.bin") for path in hub.requests)


def test_an_unreachable_hub_is_an_error(hub, run_python):
    code = (
        "import perron\n"
        "try: perron.load('hub:me/unreached')\n"
        "except perron.errors.DataError as error: print(error)"
    )
    offline = f"import os; os.environ['HF_HUB_OFFLINE'] = '1'; {code}"
    run = run_python("-c", offline)
    assert "hub:me/unreached" in run.stdout, run.stderr


@pytest.mark.parametrize("name", ["runs/demo/model", "/a/b", "model", "a b/c", ""])
def test_a_name_that_is_not_valid_on_the_hub_is_a_folder(name):
    assert hub_name(name) is None
    for load in (perron.load, Pipeline.from_pretrained):
        with pytest.raises(DataError, match=mentions(Path(name))) as caught:
            load(name)
        assert "hub:" not in str(caught.value)


@pytest.mark.parametrize("load", [perron.load, Pipeline.from_pretrained])
class TestFoldersBeforeTheHub:
    """Both functions follow the same rule and do not query the Hub for a folder."""

    @pytest.fixture(autouse=True)
    def _working_directory(self, tmp_path, monkeypatch):
        small_pipeline("text").save_pretrained(tmp_path / "me" / "films")
        monkeypatch.chdir(tmp_path)

    def test_an_existing_folder_is_loaded(self, load):
        assert load("me/films").name == "films"

    def test_a_misspelled_folder_is_not_looked_up_on_the_hub(self, load):
        with pytest.raises(DataError, match=mentions("me/flims", "hub:me/flims")):
            load("me/flims")

    def test_a_path_object_is_always_a_folder(self, load):
        with pytest.raises(DataError, match=mentions(Path("owner/model"))):
            load(Path("owner/model"))
