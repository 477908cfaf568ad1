"""Models go to a hub and come back, over HTTP, by the hub's own client."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

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
        (running.folder / "model" / "README.md").write_text("# My own words\n")
        yield running


@pytest.fixture(scope="module")
def at_hub(hub):
    """Return what runs code or a command whose hub is the one on this machine."""

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
def pushed(hub, at_hub):
    code = "import perron; print(perron.load('model').push_to_hub('me/films'))"
    run = at_hub("-c", code)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_what_is_pushed_is_the_model_its_words_and_its_card(hub, pushed):
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
def test_what_is_loaded_is_what_was_pushed(hub, pushed, at_hub, load, name):
    code = (
        f"import perron; from perron import Pipeline; model = {load}({name!r})\n"
        f"print(model.name, *model.predict_proba([{TEXT!r}])[0].tolist(), model.card)"
    )
    run = at_hub("-c", code)
    assert run.returncode == 0, run.stderr
    shares = perron.load(hub.folder / "model").predict_proba([TEXT])[0].tolist()
    told = run.stdout.split()
    assert told[0] == "me/films"
    assert [float(part) for part in told[1:4]] == shares
    assert "My own words" in run.stdout


def test_commands_take_a_model_of_the_hub(hub, pushed, at_hub):
    run = at_hub("-m", "perron", "predict", "hub:me/films", TEXT)
    assert run.returncode == 0, run.stderr
    assert perron.load(hub.folder / "model").predict([TEXT])[0] in run.stdout


def test_a_model_that_is_not_there_is_said_in_a_line(pushed, at_hub):
    run = at_hub("-m", "perron", "predict", "hub:me/nothing", TEXT)
    assert run.returncode == 1
    assert_mentions(run.stderr, "hub:me/nothing", "no such model")
    assert "Traceback" not in run.stderr


def test_pickled_weights_are_neither_fetched_nor_read(hub, at_hub):
    """A stock mixin would take pytorch_model.bin where there are no safetensors."""
    files = dict(hub.models["me/films"])
    del files["model.safetensors"]
    files["pytorch_model.bin"] = pickle.dumps({"weight": 1})
    hub.models["me/pickle"] = files
    run = at_hub("-m", "perron", "predict", "hub:me/pickle", TEXT)
    assert run.returncode == 1
    assert "model.safetensors" in run.stderr
    assert not any(path.endswith("pytorch_model.bin") for path in hub.asked)


def test_a_hub_that_cannot_be_reached_is_said_in_a_line(hub, at_hub):
    code = (
        "import perron\n"
        "try: perron.load('hub:me/unreached')\n"
        "except perron.errors.DataError as error: print(error)"
    )
    environment_free = f"import os; os.environ['HF_HUB_OFFLINE'] = '1'; {code}"
    run = at_hub("-c", environment_free)
    assert "hub:me/unreached" in run.stdout, run.stderr


@pytest.mark.parametrize("name", ["runs/demo/model", "/a/b", "model", "a b/c", ""])
def test_what_is_no_name_of_the_hub_is_a_folder(name):
    assert hub_name(name) is None
    for load in (perron.load, Pipeline.from_pretrained):
        with pytest.raises(DataError, match=mentions(Path(name))) as caught:
            load(name)
        assert "hub:" not in str(caught.value)


@pytest.mark.parametrize("load", [perron.load, Pipeline.from_pretrained])
class TestFoldersBeforeTheHub:
    """Both functions have one rule, and neither asks the hub about a folder."""

    @pytest.fixture(autouse=True)
    def _here(self, tmp_path, monkeypatch):
        small_pipeline("text").save_pretrained(tmp_path / "me" / "films")
        monkeypatch.chdir(tmp_path)

    def test_a_folder_that_is_there(self, load):
        assert load("me/films").name == "films"

    def test_a_misspelled_name_beside_other_folders(self, load):
        with pytest.raises(DataError, match=mentions("me/flims", "hub:me/flims")):
            load("me/flims")

    def test_a_path(self, load):
        with pytest.raises(DataError, match=mentions(Path("owner/model"))):
            load(Path("owner/model"))
