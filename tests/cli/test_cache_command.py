"""``perron cache``, and messages about the states of a frozen encoder."""

import json
import os

import pytest
from perron_tests.errors import assert_mentions
from perron_tests.tiny_bert import write_tiny_bert
from perron_tests.training import write_texts

from perron.cli import info
from perron.layers.pretrained import HuggingFaceEncoder
from perron.text.state_store import LayerStore, list_stores, states_folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return write_tiny_bert(tmp_path_factory.mktemp("hf") / "tiny-bert")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def options(bert, tmp_path):
    return [
        f"--data={write_texts(tmp_path / 'texts.csv', rows=60)}",
        f"--encoder=hf:{bert}",
        "--set=model.encoder.freeze=true",
        "--set=model.encoder.layers=[1, 2]",
        "--set=text.max_words=30",
        "--set=training.max_epochs=1",
    ]


def test_commands_report_encoding_once(perron, cache, options, tmp_path, monkeypatch):
    outcome = perron("train", *options, "--out", tmp_path / "run")
    assert outcome.status == 0, outcome.err
    (stored, _) = list_stores()
    assert outcome.err.count("Encoding") == outcome.err.count("Encoded") == 1
    assert_mentions(outcome.err, f"Encoding {stored.texts} texts once", cache, "GB")
    assert_mentions(outcome.err, f"Encoded {stored.texts} texts", "texts/s")

    def fail(*arguments):
        raise AssertionError("a text was encoded again")

    monkeypatch.setattr(HuggingFaceEncoder, "layer_states", fail)
    outcome = perron("evaluate", tmp_path / "run")
    assert outcome.status == 0, outcome.err
    assert "Encod" not in outcome.err
    outcome = perron(
        "compare", *options, "--seeds=1", "--aggregators=mean", "--out", tmp_path / "c"
    )
    assert outcome.status == 0, outcome.err
    assert "Encod" not in outcome.err


def test_threads_are_limited_before_encoding(
    perron, cache, options, tmp_path, monkeypatch
):
    events = []
    real = HuggingFaceEncoder.layer_states

    def layer_states(self, states, mask):
        events.append("encode")
        return real(self, states, mask)

    monkeypatch.setattr(HuggingFaceEncoder, "layer_states", layer_states)
    monkeypatch.setattr(
        "perron.cli.train.limit_threads", lambda *_, **__: events.append("limit")
    )
    assert perron("train", *options, "--out", tmp_path / "run", "-q").status == 0
    assert events[0] == "limit"
    assert "encode" in events


def test_a_small_limit_is_reported(perron, cache, options, tmp_path):
    limit = "--set=training.max_cache_gigabytes=1e-6"
    outcome = perron(
        "compare",
        *options,
        limit,
        "--seeds=1",
        "--aggregators=mean",
        "--out",
        tmp_path / "c",
    )
    assert outcome.status == 0, outcome.err
    assert_mentions(outcome.err, "not cached", "training.max_cache_gigabytes")
    assert list_stores() == []


class TestCache:
    @pytest.fixture(autouse=True)
    def stores(self, perron, cache, options, tmp_path):
        assert perron("train", *options, "--out", tmp_path / "run", "-q").status == 0
        return {store.layer: store.folder for store in list_stores()}

    def test_list_shows_each_layer(self, perron, cache):
        outcome = perron("cache", "list")
        # In a narrow terminal, the path of the encoder takes several lines.
        rows = [
            line.split("│") for line in outcome.out.splitlines() if "float16" in line
        ]
        texts = str(list_stores()[0].texts)
        assert sorted(row[2].strip() for row in rows) == ["1", "2"]
        assert all(row[4].strip() == texts for row in rows)
        assert_mentions(outcome.out, cache, "states", "datasets", "MB")

    def test_list_as_json(self, perron, cache):
        content = json.loads(perron("cache", "list", "--json").out)
        assert content["folder"] == str(cache)
        assert {row["layer"] for row in content["states"]} == {1, 2}
        files = cache.glob("*.arrow")
        assert content["datasets"] == sum(path.stat().st_size for path in files) > 0

    def test_prune_by_size(self, perron, stores):
        os.utime(stores[1], (1, 1))
        size = max(store.size for store in list_stores())
        limit = f"--max-gigabytes={1.5 * size / 1e9}"
        assert perron("cache", "prune", limit).status == 0
        assert [store.layer for store in list_stores()] == [2]

    def test_prune_by_age(self, perron, stores):
        os.utime(stores[2], (1, 1))
        outcome = perron("cache", "prune", "--older-than=30")
        assert outcome.status == 0
        assert_mentions(outcome.err, "1 layer (")
        assert [store.layer for store in list_stores()] == [1]

    def test_prune_needs_a_limit(self, perron):
        outcome = perron("cache", "prune")
        assert outcome.status == 2
        assert_mentions(outcome.err, "--max-gigabytes", "--older-than")
        assert perron("cache", "prune", "--max-gigabytes=-1").status == 2
        assert len(list_stores()) == 2

    def test_clear_needs_confirmation(self, perron, cache, monkeypatch):
        outcome = perron("cache", "clear")
        assert outcome.status == 2
        assert_mentions(outcome.err, "--yes", cache)
        monkeypatch.setattr(info, "is_interactive", lambda: True)
        monkeypatch.setattr(
            "typer.confirm", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        assert perron("cache", "clear").status == 130
        assert len(list_stores()) == 2

    def test_clear_removes_everything_and_nothing_else(self, perron, cache):
        mine = [cache / "notes.txt", cache / "table.arrow", states_folder() / "mine"]
        for path in mine:
            path.write_text("mine")
        outcome = perron("cache", "clear", "--yes")
        assert outcome.status == 0
        assert_mentions(outcome.err, "Removed", cache)
        left = {path for path in cache.rglob("*") if path.is_file()}
        assert {path for path in left if path.suffix != ".lock"} == set(mine)
        outcome = perron("cache", "clear")
        assert outcome.status == 0
        assert "empty" in outcome.err

    def test_clear_keeps_states_that_are_being_written(self, perron, stores):
        with LayerStore(stores[2], 16, "float16", {}).lock:
            outcome = perron("cache", "clear", "--yes")
        assert outcome.status == 1
        assert_mentions(outcome.err, "writing", stores[2])
        assert [store.layer for store in list_stores()] == [2]


def test_an_empty_cache_is_listed(perron, cache):
    outcome = perron("cache", "list")
    assert outcome.status == 0
    assert_mentions(outcome.out, cache, "0.0 MB")
    assert not cache.exists()
    lines = perron("info").out.splitlines()  # a long path takes several lines
    assert str(cache) in "".join(line.strip() for line in lines)
