import copy
import json
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import pytest
import tomli_w
from perron_tests.errors import mentions
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import perron
from perron import migrations
from perron.errors import DataError, PerronError
from perron.experiments.records import read_records
from perron.experiments.study import read_study
from perron.migration_steps import (
    Default,
    Drop,
    Kind,
    Rename,
    RenameOption,
)
from perron.migrations import (
    VERSION,
    current_version,
    from_table,
    migrate,
    stamp,
    tensor_name,
)
from perron.training.checkpoint import Checkpoint
from perron.training.recipe import read_settings
from perron.training.run import read_result

KINDS = get_args(Kind)

# A table of each kind in version 1 and in the newest version.
MODEL = {"settings": {"kind": "text", "aggregator": {"name": "max"}}, "vocabulary": 9}
NEW_MODEL = {"settings": MODEL["settings"], "vocab_size": 9}
VERSION_1 = {
    "model": ({"format": "perron-1", "model": MODEL}, {"model": NEW_MODEL}),
    "settings": (
        {
            "data": {"format": "csv", "tokenised": True},
            "model": {
                "embedding": {"dim": 5},
                "aggregator": {
                    "name": "centrality",
                    "values": "flow",
                    "solver": {"max_steps": 9},
                    "connectivity": {"name": "bilinear", "heads": 2},
                    "rank": 8,
                },
                "sentence_aggregator": {
                    "name": "centrality",
                    "connectivity": "low_rank",
                    "rank": 8,
                },
                "sentence_encoder": {"name": "bilstm", "layers": 2},
            },
        },
        {
            "data": {"format": "csv", "pretokenized": True, "stratify": False},
            "model": {
                "embedding": {"embedding_dim": 5},
                "aggregator": {
                    "name": "centrality",
                    "value": "incoming",
                    "solver": {"max_iter": 9},
                    "connectivity": {"name": "bilinear", "num_heads": 2},
                },
                "sentence_aggregator": {
                    "name": "centrality",
                    "connectivity": "low_rank",
                    "rank": 8,
                },
                "sentence_encoder": {"name": "bilstm", "num_layers": 2},
            },
        },
    ),
    "study": (
        {
            "title": "two aggregators",
            "set": ["training.batch_size_low=8", "training.seed=1"],
            "grid": [["model.encoder.hidden=9"], []],
            "variants": {
                "a": {"set": ['model.aggregator={name="centrality", heads=2}']},
                "b": {},
            },
        },
        {
            "title": "two aggregators",
            "set": ["training.min_batch_size=8", "training.seed=1"],
            "grid": [["model.encoder.hidden_dim=9"], []],
            "variants": {
                "a": {"set": ['model.aggregator={name="centrality", num_heads=2}']},
                "b": {},
            },
        },
    ),
    "checkpoint": (
        {"standing": {"epoch": 1, "seen": 8}, "metrics_bytes": 3, "fingerprint": "f"},
        {"state": {"epoch": 1, "examples": 8}, "metrics_bytes": 3, "fingerprint": "f"},
    ),
    "metrics": (
        {"epoch": 0, "train_loss": 0.5, "dev_loss": 0.6, "dev_accuracy": 0.7},
        {"epoch": 0, "train_log_loss": 0.5, "dev_log_loss": 0.6, "dev_accuracy": 0.7},
    ),
    "result": (
        {"seed": 1, "dev_accuracy": 0.9, "test_accuracy": None, "commonest": 0.5},
        {"seed": 1, "dev": {"accuracy": 0.9}, "test": None, "majority_share": 0.5},
    ),
    "record": (
        {
            "command": "perron train sst2 --set training.l2=0.1 --set "
            "model.aggregator.values=flow --set 'vectors=[\"a b\"]'",
            "dev": 0.9,
            "test": 0.8,
            "right": "f0",
            "tests": 4,
        },
        {
            "command": "perron train sst2 --set training.weight_decay=0.1 --set "
            "model.aggregator.value=incoming --set 'vectors=[\"a b\"]'",
            "dev": {"accuracy": 0.9},
            "test": {"accuracy": 0.8},
            "correct": "f0",
            "test_size": 4,
        },
    ),
    "pickle": (
        {
            "heads": 2,
            "pipeline_": {
                "name": "model",
                "config": json.dumps(MODEL),
                "tokenizer": "{}",
                "weights": b"w",
            },
        },
        {
            "num_heads": 2,
            "lr_scheduler_type": "staircase",
            "warmup_ratio": 0.0,
            "pipeline_": {
                "name": "model",
                "files": {
                    "config.json": json.dumps(
                        {"format": "perron-1", "model": MODEL}
                    ).encode(),
                    "model.safetensors": b"w",
                    "tokenizer.json": b"{}",
                },
            },
        },
    ),
    "transformers": ({"aggregator": {"name": "max"}}, {"aggregator": {"name": "max"}}),
    "sentence_transformers": (
        {"dim": 4, "include_prompt": False, "hidden": 3},
        {
            "embed_dim": 4,
            "include_prompt": False,
            "aggregator": {"name": "centrality", "hidden_dim": 3},
        },
    ),
    "graph": (
        {
            "schema": "perron-graph-1",
            "words": [{"places": [[0, 1]], "cut": True, "heads": []}],
            "sentences": {
                "places": [],
                "cut": False,
                "heads": [{"solver": {"steps": 3}}],
            },
        },
        {
            "words": [{"spans": [[0, 1]], "truncated": True, "heads": []}],
            "sentences": {
                "spans": [],
                "truncated": False,
                "heads": [{"solver": {"iterations": 3}}],
            },
        },
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_version_1_is_migrated_to_the_newest(kind):
    old, new = VERSION_1[kind]
    before = copy.deepcopy(old)
    assert migrate(kind, old) == new
    assert old == before  # the argument is not modified


@pytest.mark.parametrize(
    "data", [{"format": "csv", "dev": "dev.csv"}, {"format": "imdb-25k"}]
)
def test_stratify_is_not_set_for_data_with_their_own_split(data):
    assert migrate("settings", {"data": data}) == {"data": data}


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_version_is_not_changed(kind):
    table = dict(VERSION_1[kind][1])
    if kind == "graph":
        assert migrate(
            kind, {"schema": f"perron-graph-{current_version(kind)}", **table}
        ) == (table)
    else:
        assert stamp(kind, table)[VERSION] == current_version(kind)
        assert migrate(kind, stamp(kind, table)) == table


@pytest.mark.parametrize("kind", KINDS)
def test_a_future_version_is_an_error(kind):
    future = current_version(kind) + 1
    table = {VERSION: future, "schema": f"perron-graph-{future}"}
    with pytest.raises(
        DataError, match=mentions("some/file", future, current_version(kind))
    ):
        migrate(kind, table, "some/file")


@pytest.mark.parametrize("version", [0, -1, 1.0, True, "1", None])
def test_a_version_must_be_a_positive_integer(version):
    with pytest.raises(DataError, match=mentions(VERSION, repr(version))):
        migrate("settings", {VERSION: version})


@pytest.mark.parametrize("schema", [None, "perron-graph-", "perron-graph-x", "1"])
def test_an_unknown_graph_schema_is_an_error(schema):
    with pytest.raises(DataError, match="schema"):
        migrate("graph", {} if schema is None else {"schema": schema})


@pytest.mark.parametrize("table", [{}, {"model": {}}, {"format": "perron-2"}])
def test_a_model_must_have_a_version(table):
    with pytest.raises(DataError, match="Perron model"):
        migrate("model", table)


def test_a_table_that_does_not_match_its_version_is_an_error():
    with pytest.raises(DataError, match=mentions("file", "pickle", "format 1")):
        migrate("pickle", {"pipeline_": {"name": "no config"}}, "file")


@pytest.mark.parametrize("table", [[], 3, None, "text"])
def test_a_value_that_is_not_a_table_is_an_error(table):
    with pytest.raises(DataError, match=mentions("file", "record", repr(table))):
        migrate("record", table, "file")


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)


class TestFromTable:
    def test_defaults_are_used(self):
        assert from_table(Point, "metrics", {"x": 3}) == Point(3)
        assert from_table(Point, "metrics", {"x": 3, "tags": ["a"]}).tags == ["a"]

    @pytest.mark.parametrize(
        ("table", "key"), [({"x": 1, "color": 2}, "color"), ({"y": 1}, "x")]
    )
    def test_unknown_and_missing_keys_are_named(self, table, key):
        with pytest.raises(DataError, match=mentions("file", f"{key} is")):
            from_table(Point, "metrics", stamp("metrics", table), "file")

    def test_older_versions_are_migrated_first(self, monkeypatch):
        changes = (Rename("left", "x"), Drop("color"))
        monkeypatch.setattr(migrations, "STEPS", {1: {"metrics": changes}})
        table = {"left": 3, "color": "red"}
        assert from_table(Point, "metrics", table) == Point(3)
        with pytest.raises(DataError, match=mentions("color")):
            from_table(Point, "metrics", stamp("metrics", table))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("encoder.onward.0.bias_hh_l0", "encoder.forward_layers.0.bias_hh_l0"),
        (
            "model.sentence_encoder.homeward.1.x",
            "model.sentence_encoder.backward_layers.1.x",
        ),
        ("encoder.enter.weight", "encoder.input_projection.weight"),
        ("optimiser.0.exp_avg", "optimizer.0.exp_avg"),
        ("chance.0", "rng.0"),
        ("encoder.model.encoder.layer.0.x", "encoder.model.encoder.layer.0.x"),
    ],
)
def test_old_tensor_names_are_renamed(old, new):
    assert tensor_name(old) == new
    assert tensor_name(new) == new


class TestSteps:
    """Changes of formats, with steps after the newest version."""

    @pytest.fixture
    def steps(self, monkeypatch):
        """Return a function that adds a step after the newest version."""
        known = dict(migrations.STEPS)
        monkeypatch.setattr(migrations, "STEPS", known)

        def add(kind, *changes):
            known[1 + max(known)] = {kind: changes}

        return add

    def test_an_option_is_renamed(self, steps):
        steps("settings", Rename("training.old", "training.new"))
        table = {"training": {"old": 0.1, "seed": 2}}
        want = {"training": {"new": 0.1, "seed": 2}}
        assert migrate("settings", stamp("settings", want)) == want
        for version in (1, 2, 3):
            assert migrate("settings", {VERSION: version, **table}) == want

    def test_an_old_name_is_an_unknown_key_in_the_newest_version(self, steps):
        steps("settings", Rename("training.old", "training.new"))
        table = stamp("settings", {"training": {"old": 0.1}})
        assert migrate("settings", table) == {"training": {"old": 0.1}}

    def test_a_value_moves_to_another_table(self, steps):
        steps("settings", Rename("text.max_words", "model.max_tokens"))
        assert migrate("settings", {"text": {"max_words": 5}}) == {
            "text": {},
            "model": {"max_tokens": 5},
        }

    def test_missing_keys_are_not_renamed(self, steps):
        steps("settings", Rename("training.old", "training.new"))
        assert migrate("settings", {"model": {"old": 1}}) == {"model": {"old": 1}}

    def test_a_key_is_dropped(self, steps):
        steps("settings", Drop("training.old"), Drop("vectors"), Drop("no.such"))
        table = {"training": {"old": 5, "seed": 0}, "vectors": []}
        assert migrate("settings", table) == {"training": {"seed": 0}}

    def test_defaults_are_set_for_older_versions(self, steps):
        steps("settings", Default("training.shuffle", False))
        assert migrate("settings", {})["training"] == {"shuffle": False}
        table = {"training": {"shuffle": True}}
        assert migrate("settings", table) == table

    def test_steps_are_applied_in_order(self, steps):
        steps("settings", Rename("a", "b"))
        steps("settings", Rename("b", "c"))
        newest = current_version("settings")
        assert migrate("settings", {VERSION: newest - 2, "a": 1}) == {"c": 1}
        assert migrate("settings", {VERSION: newest - 1, "a": 1}) == {"a": 1}

    def test_only_changed_kinds_have_a_new_version(self, steps):
        before = {kind: current_version(kind) for kind in KINDS}
        newest = max(before.values())
        steps("metrics", Rename("a", "b"))
        steps("settings", Rename("a", "b"))
        after = {kind: current_version(kind) for kind in KINDS}
        assert after == before | {"metrics": newest + 1, "settings": newest + 2}
        assert migrate("settings", {VERSION: newest + 1, "a": 1}) == {"b": 1}

    @pytest.mark.parametrize("role", ["aggregator", "sentence_aggregator"])
    @pytest.mark.parametrize(("new", "want"), [("units", {"units": 3}), (None, {})])
    def test_an_option_of_a_component_is_renamed_everywhere(
        self, role, new, want, steps
    ):
        steps("model settings", RenameOption("aggregator", "centrality", "size", new))
        settings = {
            role: {"name": "centrality", "size": 3},
            "encoder": {"name": "centrality", "size": 3},
        }
        renamed = {**settings, role: {"name": "centrality", **want}}
        model = {"format": "perron-1", "model": {"settings": settings}}
        assert migrate("model", model) == {"model": {"settings": renamed}}
        assert migrate("settings", {"model": settings}) == {"model": renamed}
        assert migrate("pickle", settings).items() >= renamed.items()
        assert migrate("transformers", settings) == renamed
        flat = migrate("sentence_transformers", {"dim": 4, "size": 3})
        assert flat == {"embed_dim": 4, "aggregator": {"name": "centrality", **want}}

    @pytest.mark.parametrize("aggregator", ["centrality", {"name": "max", "size": 3}])
    def test_other_components_are_not_changed(self, aggregator, steps):
        steps("model settings", RenameOption("aggregator", "centrality", "size", "u"))
        table = {"model": {"aggregator": aggregator}}
        assert migrate("settings", table) == table


OLD = Path(__file__).with_name("earlier_formats") / "version_1"


def write_json(path, table):
    path.write_text(json.dumps(table) + "\n")


def model_file(folder, extra):
    shutil.copytree(OLD / "models" / "text", folder, dirs_exist_ok=True)
    content = json.loads((folder / "config.json").read_text())
    model = migrate("model", content)["model"]
    write_json(folder / "config.json", stamp("model", {"model": model | extra}))
    perron.load(folder)


def settings_file(folder, extra):
    table = tomllib.loads((OLD / "finished/run/settings.toml").read_text())
    table = migrate("settings", table)
    table["training"] |= extra
    content = tomli_w.dumps(stamp("settings", table))
    (folder / "settings.toml").write_text(content)
    read_settings(folder)


def result_file(folder, extra):
    table = json.loads((OLD / "finished/run/result.json").read_text())
    table = migrate("result", table) | extra
    write_json(folder / "result.json", stamp("result", table))
    read_result(folder)


def record_file(folder, extra):
    path = OLD / "study/runs/records.jsonl"
    table = migrate("record", json.loads(path.read_text().splitlines()[0])) | extra
    write_json(folder / "records.jsonl", stamp("record", table))
    (record,) = read_records(folder / "records.jsonl")
    assert record.dev["accuracy"] > 0


def study_file(folder, extra):
    table = tomllib.loads((OLD / "study/study.toml").read_text()) | extra
    (folder / "study.toml").write_text(tomli_w.dumps(stamp("study", table)))
    read_study(str(folder / "study.toml"))


def checkpoint_file(folder, extra):
    path = OLD / "interrupted/plain/checkpoint.safetensors"
    with safe_open(path, "pt") as file:
        table = migrate("checkpoint", json.loads(file.metadata()["perron"])) | extra
    header = {"perron": json.dumps(stamp("checkpoint", table))}
    save_file(load_file(path), folder / "checkpoint.safetensors", header)
    Checkpoint.read(folder)


READERS = [
    model_file,
    settings_file,
    result_file,
    record_file,
    study_file,
    checkpoint_file,
]


@pytest.mark.parametrize("read", READERS)
class TestReaders:
    """Functions that read files, applied to the newest version."""

    def test_a_file_of_the_newest_version_is_read(self, read, tmp_path):
        read(tmp_path, {})

    def test_an_unknown_key_is_named(self, read, tmp_path):
        with pytest.raises(PerronError, match=mentions(tmp_path, "color")):
            read(tmp_path, {"color": "red"})


def test_an_unknown_key_in_version_1_is_named(tmp_path):
    content = (OLD / "finished/run/settings.toml").read_text()
    (tmp_path / "settings.toml").write_text('color = "red"\n' + content)
    with pytest.raises(PerronError, match=mentions(tmp_path, "color")):
        read_settings(tmp_path)
