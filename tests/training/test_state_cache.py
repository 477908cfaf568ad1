"""Cached states of frozen encoders: each text is encoded once."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
import torch
from perron_tests import environment
from perron_tests.errors import assert_mentions, mentions
from perron_tests.tiny_bert import write_tiny_bert
from perron_tests.training import stopped_run, tiny_table, write_texts
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from perron.errors import PerronError
from perron.layers.pretrained import HuggingFaceEncoder
from perron.text import state_store
from perron.text.state_store import list_stores, remove_store
from perron.training import read_recipe, train
from perron.training.prepare import prepare
from perron.training.run import finish, read_result

# Texts, among them one token, duplicates, and one that the tokenizer makes empty.
TEXTS = [
    "\ufffd",
    "a",
    "the film",
    "the film",
    "unbelievable films (lovely)",
    "a. b. c.",
]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return write_tiny_bert(tmp_path_factory.mktemp("hf") / "tiny-bert")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "states"


@pytest.fixture
def table(bert, tmp_path):
    settings = tiny_table(write_texts(tmp_path / "texts.csv", rows=60))
    settings["model"] = {
        "encoder": {"name": "hf", "model": str(bert), "freeze": True},
        "aggregator": {"name": "centrality", "hidden_dim": 8},
        "head": {"hidden_dim": 8, "dropout": 0.0},
    }
    settings["text"] = {"max_words": 30}
    settings["training"] |= {"max_epochs": 2, "cache_dtype": "float32"}
    return settings


@pytest.fixture
def calls(monkeypatch):
    """Count the texts that run through the transformer."""
    lengths: list[int] = []
    real = HuggingFaceEncoder.layer_states

    def layer_states(self, states, mask):
        lengths.extend(mask.sum(1).tolist())
        return real(self, states, mask)

    monkeypatch.setattr(HuggingFaceEncoder, "layer_states", layer_states)
    return lengths


def distinct_texts(path):
    """Return the number of different nonempty texts in a CSV file."""
    lines = Path(path).read_text().splitlines()[1:]
    return len({line.rpartition(",")[0] for line in lines} - {""})


def with_encoder(table, **settings):
    encoder = table["model"]["encoder"] | settings
    return table | {"model": table["model"] | {"encoder": encoder}}


def with_training(table, **settings):
    return table | {"training": table["training"] | settings}


def logits(prepared):
    """Return the logits of all texts of all splits."""
    parts = [part for part in (prepared.train, prepared.dev, prepared.test) if part]
    model = prepared.model.eval()
    with torch.no_grad():
        return torch.cat(
            [model(**part.batch(range(len(part))).inputs).logits for part in parts]
        )


class Messages:
    """Collects the progress of encoding."""

    def __init__(self):
        self.lines = []
        self.counts = []

    def __call__(self, message, done, total):
        if not self.lines or self.lines[-1] != message:
            self.lines.append(message)
        self.counts.append((done, total))


KINDS = ("text", "document", "pair")


@pytest.fixture(params=KINDS)
def any_kind(request, table, tmp_path):
    """Return settings for each kind of model, with edge cases in the data."""
    kind = request.param
    rows = [
        f"{row % 2},{first},{second}"
        for row, (first, second) in enumerate(
            zip(TEXTS * 8, TEXTS[::-1] * 8, strict=True)
        )
    ]
    (tmp_path / "edge.csv").write_text("\n".join(["label,text,other", *rows]))
    data = {"format": "csv", "train": str(tmp_path / "edge.csv")}
    model = table["model"] | {"kind": kind}
    if kind == "pair":
        data["text_pair"] = "other"
    if kind == "document":
        model["sentence_encoder"] = {"name": "bilstm", "hidden_dim": 3}
    return table | {"data": data, "model": model}


@pytest.mark.parametrize("layers", ["last", "mix", [1], [2, 0]])
def test_the_cache_does_not_change_the_results(any_kind, layers):
    settings = with_encoder(any_kind, layers=layers)
    want = logits(prepare(read_recipe(with_training(settings, cache_dtype="none"))))
    assert want.isfinite().all()
    got = logits(prepare(read_recipe(settings)))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "error"), [("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 0.05)]
)
def test_results_agree_to_the_stored_precision(any_kind, dtype, error):
    want = logits(prepare(read_recipe(with_training(any_kind, cache_dtype="none"))))
    prepared = prepare(read_recipe(with_training(any_kind, cache_dtype=dtype)))
    states = prepared.train.batch([0, 1]).inputs["states"]
    assert states.dtype == getattr(torch, dtype)
    got = logits(prepared)
    assert (got - want).abs().max() < error * want.abs().max().clamp(min=1)


def test_training_and_metrics_are_the_same_with_and_without_the_cache(table, tmp_path):
    settings = with_encoder(table, layers="mix")
    cached = train(read_recipe(settings), tmp_path / "a")
    plain = train(
        read_recipe(with_training(settings, cache_dtype="none")), tmp_path / "b"
    )
    assert cached.fingerprint == plain.fingerprint
    assert cached.test == pytest.approx(plain.test, rel=1e-3)
    assert cached.dev == pytest.approx(plain.dev, rel=1e-3)


class TestTextsAreEncodedOnce:
    @pytest.fixture
    def count(self, table):
        return distinct_texts(table["data"]["train"])

    def test_in_training(self, table, tmp_path, calls, count):
        train(read_recipe(table), tmp_path / "run")
        assert len(calls) == count

    def test_across_runs(self, table, tmp_path, calls, count):
        train(read_recipe(table), tmp_path / "run")
        for seed, aggregator in enumerate(["mean", "self-attention"]):
            table["model"]["aggregator"] = aggregator
            recipe = read_recipe(with_training(table, seed=seed, batch_size=16))
            train(recipe, tmp_path / aggregator)
        assert len(calls) == count

    def test_across_resume_and_finish(self, table, tmp_path, calls, count):
        recipe = read_recipe(table)
        train(recipe, stopped_run(recipe, tmp_path / "run", 1), resume=True)
        finish(stopped_run(recipe, tmp_path / "other", 1))
        assert len(calls) == count

    def test_across_splits_and_truncation(self, table, calls, count):
        prepare(read_recipe(table))
        del calls[:]
        table["data"]["split"] = [0.5, 0.25, 0.25]
        prepare(read_recipe(table))
        table["text"]["max_words"] = 38  # longer than any text
        prepare(read_recipe(table))
        assert calls == []

    def test_unless_they_are_new(self, table, calls, tmp_path):
        prepare(read_recipe(table))
        del calls[:]
        path = Path(table["data"]["train"])
        path.write_text(path.read_text() + "some sour sour film,bad\n")
        prepare(read_recipe(table))
        assert calls == [13]  # subwords

    @pytest.mark.parametrize(
        ("first", "second", "is_encoded"),
        [
            ("mix", [1], False),
            ("mix", "last", False),
            ([2, 0], [0, 2], False),
            ([1], [2, 1], True),
            ([1], "last", True),
        ],
    )
    def test_across_layers(self, table, calls, first, second, is_encoded):
        prepare(read_recipe(with_encoder(table, layers=first)))
        del calls[:]
        prepared = prepare(read_recipe(with_encoder(table, layers=second)))
        assert bool(calls) == is_encoded
        plain = with_training(with_encoder(table, layers=second), cache_dtype="none")
        want = logits(prepare(read_recipe(plain)))
        torch.testing.assert_close(logits(prepared), want, atol=1e-5, rtol=1e-5)
        # A text is stored once per layer, even if other layers were added later.
        assert len({store.texts for store in list_stores()}) == 1

    @pytest.mark.parametrize(
        "change",
        [{"cache_dtype": "float16"}, {"cache_dtype": "bfloat16"}],
    )
    def test_unless_the_precision_changes(self, table, calls, count, change):
        prepare(read_recipe(table))
        prepare(read_recipe(with_training(table, **change)))
        assert len(calls) == 2 * count

    def test_unless_the_encoder_changes(self, table, calls, count, tmp_path, bert):
        prepare(read_recipe(table))
        other = shutil.copytree(bert, tmp_path / "other")
        prepare(read_recipe(with_encoder(table, model=str(other))))
        assert len(calls) == count  # the same weights in another folder
        prepare(read_recipe(with_encoder(table, keep_special_tokens=True)))
        assert len(calls) > count
        weights = load_file(other / "model.safetensors")
        name = "encoder.layer.1.output.dense.bias"
        weights[name] = weights[name] + 1
        save_file(weights, other / "model.safetensors", {"format": "pt"})
        del calls[:]
        prepare(read_recipe(with_encoder(table, model=str(other))))
        assert len(calls) == count
        # The first block has not changed.
        prepare(read_recipe(with_encoder(table, layers=[1])))
        del calls[:]
        prepare(read_recipe(with_encoder(table, layers=[1], model=str(other))))
        assert calls == []


def test_without_a_cache_texts_are_encoded_in_every_epoch(
    table, tmp_path, calls, cache
):
    train(read_recipe(with_training(table, cache_dtype="none")), tmp_path / "run")
    assert len(calls) > 2 * distinct_texts(table["data"]["train"])
    assert not cache.exists()


def test_a_trained_encoder_is_not_cached(table, cache):
    prepare(read_recipe(with_encoder(table, freeze=False)))
    assert not cache.exists()


def test_progress_says_what_is_needed_and_counts_texts(table, cache):
    messages = Messages()
    prepare(read_recipe(table), encoding_progress=messages)
    count = distinct_texts(table["data"]["train"])
    (line,) = messages.lines
    assert_mentions(line, f"{count} texts", "GB", cache)
    assert messages.counts[0] == (0, count)
    assert messages.counts[-1] == (count, count)
    prepare(read_recipe(table), encoding_progress=messages)
    assert len(messages.lines) == 1


def test_embedding_dropout_is_not_applied_to_a_frozen_encoder(table):
    table["model"]["embedding"] = {"dropout": 0.9}
    prepared = prepare(read_recipe(with_training(table, cache_dtype="none")))
    batch = prepared.train.batch(range(8)).inputs
    prepared.model.train()
    first, second = (prepared.model(**batch).vector for _ in range(2))
    assert first.equal(second)


def test_dropout_of_states_is_applied_to_cached_states(table):
    prepared = prepare(read_recipe(with_encoder(table, dropout=0.5)))
    batch = prepared.train.batch(range(8)).inputs
    prepared.model.train()
    assert not prepared.model(**batch).vector.equal(prepared.model(**batch).vector)
    prepared.model.eval()
    assert prepared.model(**batch).vector.equal(prepared.model(**batch).vector)


class TestCheckpoints:
    """Checkpoints leave out frozen weights, which the run reads again."""

    @pytest.fixture
    def recipe(self, table):
        return read_recipe(with_encoder(table, layers="mix"))

    def test_a_resumed_run_has_the_same_weights(self, recipe, tmp_path):
        train(recipe, tmp_path / "whole")
        folder = stopped_run(recipe, tmp_path / "stopped", 1)
        names = load_file(folder / "checkpoint.safetensors").keys()
        assert "model.encoder.mix_logits" in names
        assert not any("encoder.model" in name or "vectors" in name for name in names)
        train(recipe, folder, resume=True)
        weights = [
            (path / "model.safetensors").read_bytes()
            for path in (tmp_path / "whole", folder)
        ]
        assert weights[0] == weights[1]

    @pytest.mark.parametrize("command", [finish, train])
    def test_another_encoder_is_an_error(self, table, bert, tmp_path, command):
        other = shutil.copytree(bert, tmp_path / "other")
        recipe = read_recipe(with_encoder(table, model=str(other)))
        folder = stopped_run(recipe, tmp_path / "run", 1)
        weights = load_file(other / "model.safetensors")
        weights["embeddings.LayerNorm.bias"] += 1
        save_file(weights, other / "model.safetensors", {"format": "pt"})
        options = {"recipe": recipe, "resume": True} if command is train else {}
        with pytest.raises(PerronError, match=mentions("encoder", "changed", folder)):
            command(folder=folder, **options)

    def test_a_checkpoint_with_frozen_weights_is_read(self, recipe, tmp_path):
        """Earlier versions wrote them."""
        train(recipe, tmp_path / "whole")
        folder = stopped_run(recipe, tmp_path / "stopped", 1)
        path = folder / "checkpoint.safetensors"
        weights = load_file(folder / "model.safetensors")
        frozen = {f"model.{n}": w for n, w in weights.items() if "encoder.model" in n}
        frozen["model.embedding.vectors.weight"] = weights["embedding.vectors.weight"]
        frozen |= {
            f"model.encoder.{n}": weights[f"encoder.{n}"] for n in ("before", "after")
        }
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["perron"])
        del header["frozen"]
        save_file(load_file(path) | frozen, path, {"perron": json.dumps(header)})
        result = train(recipe, folder, resume=True)
        assert result.dev == read_result(tmp_path / "whole").dev


class TestFallback:
    """If states cannot be cached, texts are encoded in every epoch."""

    @pytest.fixture
    def check(self, table, calls):
        plain = logits(prepare(read_recipe(with_training(table, cache_dtype="none"))))

        def check(settings, *parts):
            messages = Messages()
            prepared = prepare(read_recipe(settings), encoding_progress=messages)
            assert_mentions(messages.lines[-1], "not cached", "every epoch", *parts)
            del calls[:]
            assert logits(prepared).equal(plain)
            assert calls

        return check

    def test_if_the_limit_is_too_small(self, table, check, cache):
        settings = with_training(table, max_cache_gigabytes=1e-6)
        check(settings, "training.max_cache_gigabytes", "1e-06 GB")
        assert list_stores() == []

    def test_other_stores_are_not_pruned_in_vain(self, table, check):
        prepare(read_recipe(with_training(table, cache_dtype="bfloat16")))
        (other,) = list_stores()
        check(with_training(table, max_cache_gigabytes=1e-6), "limit")
        assert [store.folder for store in list_stores()] == [other.folder]

    def test_least_recently_used_stores_make_room(self, table):
        for age, dtype in enumerate(["bfloat16", "float16"]):
            prepare(read_recipe(with_training(table, cache_dtype=dtype)))
            newest = max(list_stores(), key=lambda store: store.last_used)
            os.utime(newest.folder, (1e9 + age, 1e9 + age))
        sizes = sum(store.size for store in list_stores())
        settings = with_training(table, max_cache_gigabytes=1.7 * sizes / 1e9)
        prepare(read_recipe(settings))
        assert {store.dtype for store in list_stores()} == {"float16", "float32"}

    def test_if_the_free_space_is_too_small(self, table, check, monkeypatch):
        usage = shutil.disk_usage("/")._replace(free=1000)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        check(table, "1e-06 GB are free")

    @pytest.mark.parametrize("name", ["states-", "index-", "meta"])
    def test_if_the_disk_is_full(self, table, check, monkeypatch, name):
        real = os.fsync

        def fsync(handle):
            if name in os.readlink(f"/proc/self/fd/{handle}"):
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        check(table, "No space left")
        assert list_stores() == []  # the run needs the space
        monkeypatch.undo()

    def test_if_the_cache_is_read_only(self, table, check, monkeypatch):
        real = Path.mkdir

        def mkdir(self, *arguments, **options):
            if "states" in self.parts:
                raise OSError(errno.EROFS, "Read-only file system")
            real(self, *arguments, **options)

        monkeypatch.setattr(Path, "mkdir", mkdir)
        check(table, "Read-only")

    def test_other_errors_are_raised(self, table, monkeypatch):
        def fail(*arguments):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(state_store.LayerStore, "append", fail)
        with pytest.raises(OSError, match="Input/output"):
            prepare(read_recipe(table))


def test_a_complete_cache_can_be_read_only(table, calls, monkeypatch):
    want = logits(prepare(read_recipe(table)))
    del calls[:]

    def fail(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", fail)
    monkeypatch.setattr(state_store.FileLock, "acquire", fail)
    assert logits(prepare(read_recipe(table))).equal(want)
    assert calls == []


class TestRepair:
    """Damaged stores are dropped, with a warning, and the texts encoded again."""

    @pytest.fixture
    def want(self, table):
        return logits(prepare(read_recipe(table)))

    @pytest.mark.parametrize("keep", [0, 0.5, 0.99])
    @pytest.mark.parametrize("name", ["states-*", "index-*", "meta.json"])
    def test_truncated_files(self, table, want, cache, caplog, name, keep):
        (path,) = cache.glob(f"*/{name}")
        os.truncate(path, int(keep * path.stat().st_size))
        got = logits(prepare(read_recipe(table)))
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
        assert_mentions(caplog.text, path.name, "encoded again")
        caplog.clear()
        prepare(read_recipe(table))
        assert caplog.text == ""

    @pytest.mark.parametrize("name", ["states-*", "index-*", "meta.json", ""])
    def test_missing_files(self, table, want, cache, name):
        for path in cache.glob(f"*-?/{name}"):
            path.unlink() if path.is_file() else shutil.rmtree(path)
        got = logits(prepare(read_recipe(table)))
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)

    def test_only_the_damaged_layer_is_dropped(self, table, cache, caplog):
        settings = with_encoder(table, layers="mix")
        prepare(read_recipe(settings))
        (damaged, *others) = sorted(cache.glob("*/meta.json"))
        times = [path.stat().st_mtime_ns for path in others]
        damaged.write_text("")
        prepare(read_recipe(settings))
        assert [path.stat().st_mtime_ns for path in others] == times
        assert len({store.texts for store in list_stores()}) == 1

    def test_a_store_removed_while_in_use(self, table, want):
        prepared = prepare(read_recipe(table))
        for store in list_stores():
            assert remove_store(store.folder)
        assert logits(prepared).equal(want)

    def test_a_store_removed_before_it_is_opened(
        self, table, want, monkeypatch, caplog
    ):
        real = state_store.LayerStore.open

        def open_store(self):
            monkeypatch.undo()
            os.environ["PERRON_CACHE"] = str(self.folder.parents[1])
            remove_store(self.folder)
            return real(self)

        monkeypatch.setattr(state_store.LayerStore, "open", open_store)
        torch.testing.assert_close(
            logits(prepare(read_recipe(table))), want, atol=1e-5, rtol=1e-5
        )
        assert caplog.text == ""


# Encodes texts, and is killed while it writes the states of one of several chunks.
CHILD = """
import os, signal, sys, tomllib
import torch
from perron.errors import PerronError
from perron.layers.pretrained import HuggingFaceEncoder
from perron.text import state_store
from perron.training import read_recipe, state_cache
from perron.training.prepare import prepare

torch.set_num_threads(1)
state_cache._CHUNK_TEXTS = 10
moment, number = sys.argv[2], int(sys.argv[3])
real, count = os.fsync, [0]

def fsync(handle):
    name = os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))
    if name.removeprefix(".").startswith(moment):
        count[0] += 1
        if count[0] == number:
            size = os.fstat(handle).st_size
            os.truncate(handle, size - 7)
            os.kill(os.getpid(), signal.SIGKILL)
    real(handle)

os.fsync = fsync
texts = []
layer_states = HuggingFaceEncoder.layer_states
def record(self, states, mask):
    texts.extend(mask.sum(1).tolist())
    return layer_states(self, states, mask)
HuggingFaceEncoder.layer_states = record
with open(sys.argv[1], "rb") as file:
    prepare(read_recipe(tomllib.load(file)))
print(len(texts))
"""


def start(table, folder, moment="never", number=0):
    path = folder / "recipe.toml"
    path.write_text(tomli_w.dumps(table))
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), moment, str(number)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


class TestProcesses:
    def check_stores(self, table, calls):
        """Check that all texts are stored, with the right states."""
        plain = with_training(table, cache_dtype="none")
        want = logits(prepare(read_recipe(plain)))
        del calls[:]
        got = logits(prepare(read_recipe(table)))
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
        (texts,) = {store.texts for store in list_stores()}
        assert texts == distinct_texts(table["data"]["train"])

    @pytest.mark.parametrize("moment", ["states-", "index-"])
    def test_a_killed_process_loses_at_most_one_chunk(
        self, table, tmp_path, calls, cache, moment
    ):
        table = with_encoder(table, layers=[1, 2])
        # Each chunk writes both layers. The third is killed in its second layer.
        process = start(table, tmp_path, moment, 6)
        process.communicate(timeout=120)
        assert process.returncode == -9
        assert {store.texts for store in list_stores()} == {20, 30}
        self.check_stores(table, calls)
        assert len(calls) == distinct_texts(table["data"]["train"]) - 20
        assert not list(cache.glob("*/.*.part"))

    def test_two_processes_share_the_work(self, table, tmp_path, calls):
        processes = [start(table, tmp_path) for _ in range(2)]
        outputs = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        count = distinct_texts(table["data"]["train"])
        assert sorted(map(int, outputs)) == [0, count]
        self.check_stores(table, calls)
        assert calls == []

    def test_processes_with_overlapping_layers_do_not_wait_for_each_other_forever(
        self, table, tmp_path, calls
    ):
        selections = [[2, 1, 0], [0, 1, 2], [1], [2, 0]]
        processes = []
        for number, layers in enumerate(selections):
            (tmp_path / str(number)).mkdir()
            settings = with_encoder(table, layers=layers)
            processes.append(start(settings, tmp_path / str(number)))
        for process in processes:
            process.communicate(timeout=120)
        assert [process.returncode for process in processes] == [0] * 4
        self.check_stores(with_encoder(table, layers="mix"), calls)
        assert calls == []
