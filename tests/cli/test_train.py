import json
import os
import signal
import subprocess
import sys
import time
import tomllib

import pytest
from perron_tests.errors import assert_mentions
from perron_tests.tiny_bert import write_tiny_bert
from perron_tests.training import TINY

from perron.cli import main
from perron.layers import ENCODERS
from perron.pooling import AGGREGATORS, CONNECTIVITIES
from perron.text.formats import formats
from perron.training.metrics import METRICS
from perron.training.recipe import recipe_names


def test_a_csv_becomes_a_model_with_one_command(perron, model):
    assert {path.name for path in model.iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "README.md",
        "settings.toml",
        "metrics.jsonl",
        "result.json",
        "curves.png",
    }
    assert not list(model.glob("checkpoint*")) + list(model.glob("best-*"))
    records = (model / "metrics.jsonl").read_text().splitlines()
    assert len(records) == json.loads((model / "result.json").read_text())["epochs"]
    assert "test accuracy" in (model / "README.md").read_text()


def test_it_says_what_it_reads_and_how_it_goes(perron, texts, tmp_path):
    told = perron("train", "--data", texts, "--out", tmp_path / "run", *TINY)
    assert told.status == 0
    assert_mentions(told.err, "csv", "96 / 12 / 12", "2 classes")
    assert "epoch  4  loss" in told.err
    assert told.out.startswith("best epoch ")
    assert f'perron predict {tmp_path / "run"} "..."' in told.err


def test_a_model_that_learned_nothing_is_said_to_be_so(perron, texts, tmp_path):
    options = [*TINY, "--set=training.learning_rate=1e-9"]
    told = perron("train", "--data", texts, "--out", tmp_path / "run", *options)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["dev"]["accuracy"] <= result["majority_share"]
    assert_mentions(told.err, "class", f"{100 * result['majority_share']:.2f} %")


def test_quiet_says_only_the_result(perron, texts, tmp_path):
    told = perron("train", "--data", texts, "--out", tmp_path / "run", "--quiet", *TINY)
    assert (told.status, told.err) == (0, "")
    assert "test" in told.out


@pytest.mark.parametrize("option", ["--tensorboard", "--log-with=tensorboard"])
def test_tensorboard_files_are_written_when_asked_for(perron, texts, tmp_path, option):
    options = [*TINY, option, "--set=training.max_epochs=1"]
    assert perron("train", "--data", texts, "--out", tmp_path, *options).status == 0
    assert list((tmp_path / "tensorboard").rglob("events*"))


def test_an_unknown_tracker_is_misuse(perron, texts, tmp_path):
    options = ["--out", tmp_path / "run", "--log-with", "paper", *TINY]
    told = perron("train", "--data", texts, *options)
    assert told.status == 2
    assert_mentions(told.err, "log_with", "paper", "wandb")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_not_trained_over(perron, texts, model):
    told = perron("train", "--data", texts, "--out", model, *TINY)
    assert told.status == 2
    assert_mentions(told.err, model, "--resume")


def test_resuming_a_finished_run_tells_its_result_and_clears_up(perron, model):
    left = [model / "checkpoint.safetensors", model / "best-0.safetensors"]
    for path in left:
        path.touch()
    told = perron("train", "--resume", "--out", model)
    assert (told.status, told.out[:10]) == (0, "best epoch")
    assert not any(path.exists() for path in left)


def test_a_run_finds_its_data_from_any_folder(perron, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(texts.parent)
    run = tmp_path / "run"
    assert perron("train", "--data", texts.name, "--out", run, *TINY).status == 0
    monkeypatch.chdir(tmp_path)
    assert perron("evaluate", run).status == 0


def test_resuming_with_other_settings_is_refused(perron, texts, tmp_path):
    assert perron("train", "--data", texts, "--out", tmp_path, *TINY).status == 0
    (tmp_path / "result.json").unlink()
    options = [*TINY, "--seed", 5]
    told = perron("train", "--data", texts, "--out", tmp_path, "--resume", *options)
    assert told.status == 2
    assert_mentions(told.err, "training.seed", 0, 5)


def test_a_run_in_use_is_left_alone(perron, texts, tmp_path):
    from perron.files import lock_folder

    with lock_folder(tmp_path):
        told = perron("train", "--data", texts, "--out", tmp_path, *TINY)
    assert told.status == 1
    assert_mentions(told.err, tmp_path, "another process")


MISUSE = {
    (): ["--data"],
    ("sst9",): ["recipe", "'sst9'"],
    ("own",): ["own", "--data"],
    ("demo", "--set", "training.lr=1"): ["demo", "training.lr"],
    ("--data", "texts.xml"): ["texts.xml"],
    ("--data", "t.csv", "--split", "half"): ["--split half"],
    ("--data", "t.csv", "--split", "0.5,0.6,0.1"): ["split"],
    ("demo", "--documents"): ["--documents", "--data"],
    ("demo", "--dev-data", "d.csv"): ["--dev-data", "--data"],
    ("--data", "t.csv", "--documents", "--text-pair", "b"): [
        "--documents",
        "--text-pair",
    ],
    ("--resume", "--out", "run", "--seed", "3"): ["--resume", "settings of the run"],
    ("--resume",): ["--resume", "--out"],
    ("--resume", "--out", "nowhere"): ["nowhere", "run"],
    ("sst2", "--data-dir", "nowhere"): ["--data-dir nowhere"],
    ("demo", "--nonsense"): ["--nonsense"],
}


@pytest.mark.parametrize("arguments", MISUSE, ids=" ".join)
def test_misuse_ends_with_two_and_a_reason(perron, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = perron("train", *arguments)
    assert told.status == 2
    assert_mentions(told.err, *MISUSE[arguments])
    assert "Traceback" not in told.err


def test_bad_rows_are_named_or_skipped(perron, texts, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text(texts.read_text() + "one,field,too many\n,good\n")
    told = perron("train", "--data", bad, "--out", tmp_path / "run", *TINY)
    assert told.status == 1
    assert f"{bad}, line 122: " in told.err
    assert "--skip-invalid" in told.err
    options = [*TINY, "--skip-invalid"]
    told = perron("train", "--data", bad, "--out", tmp_path / "run", *options)
    assert told.status == 0
    assert_mentions(told.err, "2 bad rows")


def test_a_missing_file_is_said_without_a_traceback(perron, tmp_path):
    told = perron("train", "--data", tmp_path / "none.csv", "--out", tmp_path / "run")
    assert told.status == 1
    assert_mentions(told.err, tmp_path / "none.csv")
    assert "Traceback" not in told.err


def test_debug_shows_where_it_came_from(perron, tmp_path):
    from perron.errors import DataError

    with pytest.raises(DataError):
        perron("train", "--data", tmp_path / "none.csv", "--debug")


@pytest.fixture
def running(texts, tmp_path, shared_cache):
    """Return the folder and the process of a training whose first epoch is over."""
    folder = tmp_path / "run"
    options = [*TINY, "--set=training.max_epochs=4000", "--set=training.patience=4000"]
    command = [sys.executable, "-m", "perron", "train", "--data", texts, *options]
    process = subprocess.Popen(
        [*map(str, command), "--out", folder],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    while not (folder / "config.json").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    yield folder, process
    process.kill()
    process.communicate()


def test_a_training_is_used_while_it_runs_and_finished_when_it_was_killed(
    running, perron
):
    folder, process = running
    assert perron("predict", folder, "a lovely film").status == 0
    assert perron("evaluate", folder, "--part", "dev").status == 0
    told = perron("finish", folder)
    assert told.status == 1
    assert_mentions(told.err, folder, "process")
    process.kill()
    process.wait()
    told = perron("finish", folder)
    assert told.status == 0, told.err
    assert told.out.startswith("best epoch ")
    assert (folder / "result.json").exists()
    assert "accuracy" in perron("evaluate", folder).out


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_resumes(running, sent, perron):
    folder, process = running
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + sent
    assert_mentions(err, sent.name, f"perron train --resume --out {folder}")
    assert_mentions(err, f"perron finish {folder}")
    assert "Traceback" not in err
    (folder / "settings.toml").write_text(
        (folder / "settings.toml").read_text().replace("epochs = 4000", "epochs = 1")
    )
    told = perron("train", "--resume", "--out", folder)
    assert (told.status, "best epoch" in told.out) == (0, True)


def test_every_command_has_an_example_in_its_help(perron):
    commands = ["train", "finish", "evaluate", "compare", "predict", "encode", "info"]
    for command in [*([name] for name in commands), ["data", "stats"]]:
        told = perron(*command, "--help")
        assert told.status == 0
        assert f"perron {' '.join(command)} " in told.out.split("Examples:")[1]


def test_info_lists_recipes_and_components(perron):
    told = perron("info")
    assert told.status == 0
    words = told.out.replace(",", " ").split()
    names = [*recipe_names(), *ENCODERS, *AGGREGATORS, *CONNECTIVITIES, *formats]
    names += METRICS
    assert set(names) <= set(words)


def test_a_file_of_texts_is_no_recipe(perron, texts, tmp_path):
    (tmp_path / "texts.parquet").write_bytes(b"PAR1\xa4\xff")
    for path in (texts, tmp_path / "texts.parquet"):
        told = perron("train", path)
        assert told.status == 2
        assert_mentions(told.err, path, "TOML", "--data")


def test_names_are_shown_as_they_are(perron, tmp_path):
    path = tmp_path / "[red].csv"
    lines = [f"film {k},{['[neg]', ':heart:'][k % 2]}" for k in range(30)]
    path.write_text("\n".join(["text,label", *lines]))
    folder = tmp_path / "[run]"
    told = perron("train", "--data", path, "--out", folder, *TINY)
    assert str(folder) in told.err
    for command in (["evaluate"], ["info"], ["predict"]):
        told = perron(*command, folder, *["film", ":heart:"] * (command == ["predict"]))
        assert ":heart:" in told.out
        assert "[neg]" in told.out or command == ["predict"]
    told = perron("data", "stats", "--data", path)
    assert "[red].csv" in told.out
    assert ":heart: " in told.out


def test_a_missing_package_is_said_in_one_line(monkeypatch, capsys, texts):
    monkeypatch.setattr(sys, "argv", ["perron", "train", "--data", str(texts)])
    monkeypatch.delitem(sys.modules, "perron.training.run", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert_mentions(capsys.readouterr().err, "accelerate")


def test_a_pretrained_encoder_is_one_option(perron, texts, tmp_path):
    bert = write_tiny_bert(tmp_path / "bert")
    out = tmp_path / "run"
    options = ["--encoder", f"hf:{bert}", "--out", out, "--set", "text.max_words=30"]
    told = perron("train", "--data", texts, *options)
    assert told.status == 0, told.err
    assert "pieces of words" in told.err
    settings = tomllib.loads((out / "settings.toml").read_text())
    assert settings["vectors"] == []
    assert settings["training"]["encoder_learning_rate"] == 3e-5
    told = perron("graph", out, "the unbelievable film")
    assert "unbelievable" in told.out


def test_another_encoder_is_one_option(perron, texts, tmp_path):
    options = ["--encoder", "none", "--out", tmp_path / "run"]
    asked = ["--set", "training.max_epochs=1", "--vectors", "none"]
    told = perron("train", "--data", texts, *options, *asked)
    assert "text, none, centrality" in told.err
    told = perron(
        "train", "--data", texts, "--encoder", "lstm", "--out", tmp_path / "x"
    )
    assert told.status == 2
    assert "model.encoder" in told.err
