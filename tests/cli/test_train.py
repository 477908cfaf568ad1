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
from safetensors.torch import load_file

from perron.cli import main
from perron.layers import ENCODERS
from perron.pooling import AGGREGATORS, CONNECTIVITIES
from perron.text.formats import formats
from perron.training import recipe as recipe_module
from perron.training.metrics import METRICS
from perron.training.recipe import read_settings, recipe_names

QUICK = ("--set", "training.max_epochs=1")


def test_one_command_trains_a_model_from_a_csv_file(perron, model):
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


def test_train_reports_the_data_and_its_progress(perron, texts, tmp_path):
    outcome = perron("train", "--data", texts, "--out", tmp_path / "run", *TINY)
    assert outcome.status == 0
    assert_mentions(outcome.err, "csv", "96 / 12 / 12", "2 classes")
    assert "epoch  4  loss" in outcome.err
    assert outcome.out.startswith("best epoch ")
    assert f'perron predict {tmp_path / "run"} "..."' in outcome.err


def test_a_model_that_learned_nothing_is_reported(perron, texts, tmp_path):
    options = [*TINY, "--set=training.learning_rate=1e-9"]
    outcome = perron("train", "--data", texts, "--out", tmp_path / "run", *options)
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["dev"]["accuracy"] <= result["majority_share"]
    assert_mentions(outcome.err, "class", f"{100 * result['majority_share']:.2f} %")


def test_quiet_prints_only_the_result(perron, texts, tmp_path):
    outcome = perron(
        "train", "--data", texts, "--out", tmp_path / "run", "--quiet", *TINY
    )
    assert (outcome.status, outcome.err) == (0, "")
    assert "test" in outcome.out


@pytest.mark.parametrize("option", ["--tensorboard", "--log-with=tensorboard"])
def test_tensorboard_files_are_written_on_request(perron, texts, tmp_path, option):
    options = [*TINY, option, "--set=training.max_epochs=1"]
    assert perron("train", "--data", texts, "--out", tmp_path, *options).status == 0
    assert list((tmp_path / "tensorboard").rglob("events*"))


def test_an_unknown_tracker_is_a_usage_error(perron, texts, tmp_path):
    options = ["--out", tmp_path / "run", "--log-with", "paper", *TINY]
    outcome = perron("train", "--data", texts, *options)
    assert outcome.status == 2
    assert_mentions(outcome.err, "log_with", "paper", "wandb")
    assert not (tmp_path / "run").exists()


def test_selection_metric_class_weights_and_calibration_are_settings(
    perron, texts, tmp_path
):
    options = [*TINY, "--set=training.max_epochs=1", "--select", "macro-f1"]
    options += ["--class-weight", "good=2", "--class-weight", "bad=1"]
    outcome = perron("train", "--data", texts, "--out", tmp_path / "a", *options)
    assert outcome.status == 0
    assert_mentions(outcome.out, "true \\ predicted", "bad", "good")
    training = read_settings(tmp_path / "a").training
    assert training.metric_for_best_model == "macro_f1"
    assert training.class_weight == {"good": 2.0, "bad": 1.0}
    assert training.calibrate  # the default for your own data
    assert (tmp_path / "a/confusion.png").exists()
    options = [*TINY, "--set=training.max_epochs=1", "--select", "loss"]
    options += ["--class-weight", "balanced", "--no-calibrate"]
    run = tmp_path / "b"
    assert perron("train", "--data", texts, "--out", run, *options).status == 0
    training = read_settings(run).training
    assert training.metric_for_best_model == "log_loss"
    assert (training.class_weight, training.calibrate) == ("balanced", False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--select", "bleu"], ("metric_for_best_model", "bleu", "macro_f1")),
        (["--class-weight", "even"], ("--class-weight", "even", "balanced")),
        (["--class-weight", "good=-1"], ("class_weight", "good", -1.0)),
        (["--class-weight", "nice=2"], ("class_weight", "nice", "good")),
    ],
)
def test_an_invalid_weight_or_metric_is_a_usage_error(
    perron, texts, tmp_path, options, message
):
    outcome = perron("train", "--data", texts, "--out", tmp_path, *TINY, *options)
    assert outcome.status == 2
    assert_mentions(outcome.err, *message)


def test_a_finished_run_is_not_overwritten(perron, texts, model):
    outcome = perron("train", "--data", texts, "--out", model, *TINY)
    assert outcome.status == 2
    assert_mentions(outcome.err, model, "finished", "--out")
    assert "--resume" not in outcome.err
    (model / "result.json").rename(model / "moved")
    outcome = perron("train", "--data", texts, "--out", model, *TINY)
    (model / "moved").rename(model / "result.json")
    assert outcome.status == 2
    assert_mentions(outcome.err, model, "--resume", "--out")


def test_resuming_a_finished_run_prints_its_result_and_removes_checkpoints(
    perron, model
):
    leftovers = [model / "checkpoint.safetensors", model / "best-0.safetensors"]
    for path in leftovers:
        path.touch()
    outcome = perron("train", "--resume", "--out", model)
    assert (outcome.status, outcome.out[:10]) == (0, "best epoch")
    assert not any(path.exists() for path in leftovers)


def test_a_run_finds_its_data_from_any_folder(perron, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(texts.parent)
    run = tmp_path / "run"
    assert perron("train", "--data", texts.name, "--out", run, *TINY).status == 0
    monkeypatch.chdir(tmp_path)
    assert perron("evaluate", run).status == 0


def test_resuming_with_other_settings_is_an_error(perron, texts, tmp_path):
    assert perron("train", "--data", texts, "--out", tmp_path, *TINY).status == 0
    (tmp_path / "result.json").unlink()
    options = [*TINY, "--seed", 5]
    outcome = perron("train", "--data", texts, "--out", tmp_path, "--resume", *options)
    assert outcome.status == 2
    assert_mentions(outcome.err, "training.seed", 0, 5)


def test_a_locked_run_is_not_touched(perron, texts, tmp_path):
    from perron.files import lock_folder

    with lock_folder(tmp_path):
        outcome = perron("train", "--data", texts, "--out", tmp_path, *TINY)
    assert outcome.status == 1
    assert_mentions(outcome.err, tmp_path, "another process")


INVALID_USAGE = {
    (): ["--data"],
    ("sst9",): ["recipe", "'sst9'"],
    ("own",): ["own", "--data"],
    ("demo", "--set", "training.lr=1"): ["demo", "training.lr"],
    ("--data", "texts.xml"): ["texts.xml"],
    ("--data", "t.csv", "--split", "half"): ["--split", "half"],
    ("--data", "t.csv", "--split", "0.5,0.6,0.1"): ["split"],
    ("--data", "t.csv", "--split", "0.5,0.5"): ["split", "three", "0.5, 0.5"],
    ("demo", "--documents"): ["--documents", "--data"],
    ("demo", "--dev-data", "d.csv"): ["--dev-data", "--data"],
    ("--data", "t.csv", "--documents", "--text-pair", "b"): [
        "--documents",
        "--text-pair",
    ],
    ("--resume", "--out", "run", "--seed", "3"): ["--resume", "settings of the run"],
    ("--resume",): ["--resume", "--out"],
    ("--resume", "--out", "nowhere"): ["nowhere", "run"],
    ("sst2", "--data-dir", "nowhere"): ["--data-dir", "nowhere"],
    ("demo", "--nonsense"): ["--nonsense"],
}


@pytest.mark.parametrize("arguments", INVALID_USAGE, ids=" ".join)
def test_invalid_usage_exits_with_status_two_and_a_reason(
    perron, arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    outcome = perron("train", *arguments)
    assert outcome.status == 2
    assert_mentions(outcome.err, *INVALID_USAGE[arguments])
    assert "Traceback" not in outcome.err


def test_invalid_rows_are_reported_or_skipped(perron, texts, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text(texts.read_text() + "one,field,too many\n,good\n")
    outcome = perron("train", "--data", bad, "--out", tmp_path / "run", *TINY)
    assert outcome.status == 1
    assert f"{bad}, line 122: " in outcome.err
    assert "--skip-invalid" in outcome.err
    options = [*TINY, "--skip-invalid"]
    outcome = perron("train", "--data", bad, "--out", tmp_path / "run", *options)
    assert outcome.status == 0
    assert_mentions(outcome.err, "2 invalid rows")


def test_a_missing_file_is_reported_without_a_traceback(perron, tmp_path):
    outcome = perron(
        "train", "--data", tmp_path / "none.csv", "--out", tmp_path / "run"
    )
    assert outcome.status == 1
    assert_mentions(outcome.err, tmp_path / "none.csv")
    assert "Traceback" not in outcome.err


def test_debug_raises_the_original_error(perron, tmp_path):
    from perron.errors import DataError

    with pytest.raises(DataError):
        perron("train", "--data", tmp_path / "none.csv", "--debug")


@pytest.fixture
def running(texts, tmp_path, shared_cache):
    """Return the folder and the process of a run whose first epoch has finished."""
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


def test_a_run_can_be_used_while_training_and_finished_after_it_was_killed(
    running, perron
):
    folder, process = running
    assert perron("predict", folder, "a lovely film").status == 0
    assert perron("evaluate", folder, "--part", "dev").status == 0
    outcome = perron("finish", folder)
    assert outcome.status == 1
    assert_mentions(outcome.err, folder, "process")
    process.kill()
    process.wait()
    outcome = perron("finish", folder)
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("best epoch ")
    assert (folder / "result.json").exists()
    assert "accuracy" in perron("evaluate", folder).out


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_that_can_be_resumed(running, sent, perron):
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
    outcome = perron("train", "--resume", "--out", folder)
    assert (outcome.status, "best epoch" in outcome.out) == (0, True)


def test_every_command_has_an_example_in_its_help(perron):
    commands = ["train", "finish", "evaluate", "compare", "predict", "encode", "info"]
    for command in [*([name] for name in commands), ["data", "stats"]]:
        outcome = perron(*command, "--help")
        assert outcome.status == 0
        assert f"perron {' '.join(command)} " in outcome.out.split("Examples:")[1]


def test_info_lists_recipes_and_components(perron):
    outcome = perron("info")
    assert outcome.status == 0
    words = outcome.out.replace(",", " ").split()
    names = [*recipe_names(), *ENCODERS, *AGGREGATORS, *CONNECTIVITIES, *formats]
    names += METRICS
    assert set(names) <= set(words)


def test_a_data_file_is_not_a_recipe(perron, texts, tmp_path):
    (tmp_path / "texts.parquet").write_bytes(b"PAR1\xa4\xff")
    for path in (texts, tmp_path / "texts.parquet"):
        outcome = perron("train", path)
        assert outcome.status == 2
        assert_mentions(outcome.err, path, "TOML", "--data")


def test_names_are_printed_verbatim(perron, tmp_path):
    path = tmp_path / "[red].csv"
    lines = [f"film {k},{['[neg]', ':heart:'][k % 2]}" for k in range(30)]
    path.write_text("\n".join(["text,label", *lines]))
    folder = tmp_path / "[run]"
    outcome = perron("train", "--data", path, "--out", folder, *TINY)
    assert str(folder) in outcome.err
    for command in (["evaluate"], ["info"], ["predict"]):
        outcome = perron(
            *command, folder, *["film", ":heart:"] * (command == ["predict"])
        )
        assert ":heart:" in outcome.out
        assert "[neg]" in outcome.out or command == ["predict"]
    outcome = perron("data", "stats", "--data", path)
    assert "[red].csv" in outcome.out
    assert ":heart: " in outcome.out


def test_a_missing_package_is_reported_in_one_line(monkeypatch, capsys, texts):
    monkeypatch.setattr(sys, "argv", ["perron", "train", "--data", str(texts)])
    monkeypatch.delitem(sys.modules, "perron.training.run", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 1
    assert_mentions(capsys.readouterr().err, "accelerate")


def test_one_option_selects_a_pretrained_encoder(perron, texts, tmp_path):
    bert = write_tiny_bert(tmp_path / "bert")
    out = tmp_path / "run"
    options = ["--encoder", f"hf:{bert}", "--out", out, "--set", "text.max_words=30"]
    outcome = perron("train", "--data", texts, *options)
    assert outcome.status == 0, outcome.err
    assert "subwords" in outcome.err
    settings = tomllib.loads((out / "settings.toml").read_text())
    assert settings["vectors"] == []
    assert settings["model"]["encoder"]["freeze"]
    outcome = perron("graph", out, "the unbelievable film")
    assert "unbelievable" in outcome.out


def test_a_recipe_with_a_pretrained_encoder_is_fine_tuned(perron, texts, tmp_path):
    bert = write_tiny_bert(tmp_path / "bert")
    out = tmp_path / "run"
    options = ["--encoder", f"hf:{bert}", "--out", out, "--set", "text.max_words=30"]
    options += ["--set", "training.max_epochs=1"]
    outcome = perron("train", "pretrained", "--data", texts, *options)
    assert outcome.status == 0, outcome.err
    settings = tomllib.loads((out / "settings.toml").read_text())
    assert not settings["model"]["encoder"]["freeze"]
    assert settings["training"]["encoder_learning_rate"] == 3e-5


class TestDefaultEncoder:
    """Encoder of ``perron train --data`` without --encoder and --vectors."""

    def table(self, perron, texts, out, *options):
        outcome = perron("train", "--data", texts, "--out", out, *QUICK, *options)
        assert outcome.status == 0, outcome.err
        return outcome.err, tomllib.loads((out / "settings.toml").read_text())

    def test_a_named_encoder_is_frozen(self, perron, texts, tmp_path, monkeypatch):
        name = f"hf:{write_tiny_bert(tmp_path / 'bert')}"
        monkeypatch.setenv("PERRON_ENCODER", name)
        options = ["--set", "text.max_words=30"]
        message, table = self.table(perron, texts, tmp_path / "run", *options)
        assert table["model"]["encoder"]["freeze"]
        assert_mentions(message, name, "frozen", "PERRON_ENCODER", "--encoder bilstm")

    def test_word_vectors_are_used_without_transformers(
        self, perron, texts, tmp_path, monkeypatch
    ):
        monkeypatch.delenv("PERRON_ENCODER")
        monkeypatch.setattr(recipe_module, "find_spec", lambda name: None)
        message, table = self.table(perron, texts, tmp_path / "run")
        assert table["model"]["encoder"] == {
            **table["model"]["encoder"],
            "name": "bilstm",
            "hidden_dim": 100,
        }
        assert_mentions(message, "bilstm", "pip install", "transformers")

    def test_word_vectors_on_the_command_line_select_a_bilstm(
        self, perron, texts, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("PERRON_ENCODER", "hf:missing")
        options = ["--vectors", "none"]
        _, table = self.table(perron, texts, tmp_path / "run", *options)
        assert table["model"]["encoder"]["name"] == "bilstm"

    def test_an_installed_encoder_is_found(self, monkeypatch):
        monkeypatch.delenv("PERRON_ENCODER")
        monkeypatch.setattr(recipe_module, "package_folders", lambda name: [name])
        name, reason = recipe_module.default_encoder()
        assert name.startswith("hf:package:")
        assert "installed" in reason


def test_tune_starts_from_the_model_trained_with_the_frozen_encoder(
    perron, texts, tmp_path
):
    bert, out = write_tiny_bert(tmp_path / "bert"), tmp_path / "run"
    options = ["--encoder", f"hf:{bert}", "--out", out, "--set", "text.max_words=30"]
    outcome = perron("train", "--data", texts, "--tune", *options, *QUICK)
    assert outcome.status == 0, outcome.err
    frozen, tuned = load_file(out / "model.safetensors"), tmp_path / "run-tuned"
    settings = tomllib.loads((tuned / "settings.toml").read_text())
    assert settings["initial_model"] == str(out)
    assert not settings["model"]["encoder"]["freeze"]
    weights = load_file(tuned / "model.safetensors")
    # Two epochs with small learning rates change the weights, but only a little.
    for part in ("encoder.model.encoder.layer.0.", "head.layers.1."):
        names = [name for name in weights if name.startswith(part)]
        change = max((weights[n] - frozen[n]).abs().max().item() for n in names)
        assert 0 < change < 0.05


def test_tune_needs_a_pretrained_encoder(perron, texts, tmp_path):
    out = tmp_path / "run"
    outcome = perron("train", "--data", texts, "--tune", "--out", out)
    assert outcome.status == 2
    assert_mentions(outcome.err, "--tune", "hf:NAME")
    outcome = perron("train", "pretrained", "--data", texts, "--tune", "--out", out)
    assert outcome.status == 2
    assert_mentions(outcome.err, "--tune", "frozen")
    assert not out.exists()


def test_one_option_selects_another_encoder(perron, texts, tmp_path):
    options = ["--encoder", "none", "--out", tmp_path / "run", "--vectors", "none"]
    options += ["--set", "training.max_epochs=1"]
    outcome = perron("train", "--data", texts, *options)
    assert "text, none, centrality" in outcome.err
    outcome = perron(
        "train", "--data", texts, "--encoder", "lstm", "--out", tmp_path / "x"
    )
    assert outcome.status == 2
    assert "model.encoder" in outcome.err
