"""The cache of encoder states on disk."""

import os
import time

import numpy as np
import pytest
import torch

from perron.text.state_store import (
    CachedStates,
    DamagedStoreError,
    LayerStore,
    Sequences,
    list_stores,
    prune_stores,
    ranges,
    remove_store,
    states_folder,
)

DIM = 3
META = {"encoder": "tiny", "layer": 2}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "states"


def folder(letter="a"):
    return states_folder() / f"{letter * 32}-2"


def open_store(letter="a", dtype="float32"):
    return LayerStore(folder(letter), DIM, dtype, META)


def key(name):
    return name.encode().ljust(16)


def append(store, *names, length=2, value=None):
    """Append sequences whose states are all equal to a value."""
    keys = [key(name) for name in names]
    values = torch.tensor(
        [float(ord(name[0])) if value is None else value for name in names]
    )
    with_lock = values.repeat_interleave(length).unsqueeze(1).expand(-1, DIM)
    folder(store.folder.name[0]).parent.mkdir(parents=True, exist_ok=True)
    with store.lock:
        store.refresh()
        store.append(keys, np.full(len(names), length), with_lock)


def stored(store, name):
    """Return the first state of a sequence, or None."""
    (start,) = store.find([key(name)])
    return None if start < 0 else store.open()[start].tolist()


class TestLayerStore:
    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_states_are_read_back(self, dtype):
        store = open_store(dtype=dtype)
        assert store.row_bytes == DIM * getattr(torch, dtype).itemsize
        states = torch.randn(5, DIM)
        states_folder().mkdir(parents=True)
        with store.lock:
            store.append([key("x"), key("y")], np.array([2, 3]), states)
        for reader in (store, open_store(dtype=dtype)):
            assert reader.find([key("y"), key("z"), key("x")]).tolist() == [2, -1, 0]
            assert reader.open().equal(states.to(getattr(torch, dtype)))

    def test_nothing_is_written_before_the_first_states(self, cache):
        store = open_store()
        assert store.find([key("x")]).tolist() == [-1]
        assert store.open().shape == (0, DIM)
        assert not cache.exists()

    def test_readers_see_what_another_process_appends(self):
        writer, reader = open_store(), open_store()
        append(writer, "x")
        assert stored(reader, "x") is None
        reader.refresh()
        assert stored(reader, "x") == [ord("x")] * DIM
        before = reader.open()
        append(writer, "y", "z")
        reader.refresh()
        assert stored(reader, "z") == [ord("z")] * DIM
        assert before.tolist() == reader.open()[:2].tolist()

    def test_bytes_without_an_index_are_overwritten(self):
        store = open_store()
        append(store, "x")
        (path,) = folder().glob("states-*.bin")
        with path.open("ab") as file:  # of a process that was killed
            file.write(b"garbage")
        append(open_store(), "y")
        store.refresh()
        assert store.open()[:, 0].tolist() == [ord(name) for name in "xxyy"]

    def test_a_reader_never_sees_states_of_a_store_that_replaced_its_own(self):
        store = open_store()
        append(store, "x", "y")
        mapped = store.open()
        assert remove_store(folder())
        append(open_store(), "a", "b", "c")
        assert mapped[0, 0] == ord("x")  # the file is gone, but still mapped
        with pytest.raises(DamagedStoreError):
            store.open()
        append(store, "z")
        assert stored(store, "x") is None
        assert stored(store, "b") == [ord("b")] * DIM
        assert stored(store, "z") == [ord("z")] * DIM

    @pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
    @pytest.mark.parametrize("name", ["meta.json", "index-*", "states-*"])
    def test_truncated_files_are_an_error(self, name, keep):
        append(open_store(), "x", "y")
        (path,) = folder().glob(name)
        size = path.stat().st_size
        os.truncate(path, int(keep * size) if keep < 1 else keep)
        with pytest.raises(DamagedStoreError) as error:
            open_store().open()
        assert error.value.folder == folder()

    @pytest.mark.parametrize("name", ["meta.json", "index-*"])
    def test_garbage_is_an_error(self, name):
        append(open_store(), "x", "y")
        (path,) = folder().glob(name)
        path.write_bytes(b"[1, 2]")
        with pytest.raises(DamagedStoreError):
            open_store()


def test_rows_of_documents_select_their_sentences():
    lengths, counts = np.array([2, 0, 3, 1]), np.array([2, 0, 2])
    sequences = Sequences(np.arange(6), lengths, counts)
    assert sequences.select(np.array([2, 0, 1])).tolist() == [2, 3, 0, 1]
    assert sequences.ids_of(2).tolist() == [2, 3, 4]
    assert len(set(sequences.keys)) == 4
    assert ranges(np.array([7, -1, 0]), np.array([2, 0, 3])).tolist() == [7, 8, 0, 1, 2]


def test_inputs_of_a_batch_are_the_states_of_its_rows():
    layers = [torch.randn(9, DIM).half(), torch.randn(9, DIM).half()]
    sequences = Sequences(np.zeros(6), np.array([2, 0, 3, 1]), np.array([2, 0, 2]))
    starts = [np.array([4, -1, 0, 8]), np.array([1, -1, 5, 3])]
    source = CachedStates({"ids": (sequences, starts)}, layers, is_document=True)
    inputs = source.inputs(np.array([2, 1, 0]))
    assert inputs["lengths"].tolist() == [3, 1, 2, 0]
    assert inputs["sentences"].tolist() == [2, 0, 2]
    rows = [[0, 1, 2, 8, 4, 5], [5, 6, 7, 3, 1, 2]]
    want = torch.stack([layer[row] for layer, row in zip(layers, rows, strict=True)], 1)
    assert inputs["states"].equal(want)
    empty = source.inputs(np.array([1]))
    assert empty["states"].shape == (0, 2, DIM)


class TestManagement:
    @pytest.fixture
    def stores(self):
        """Create three stores; c was used last, then a, then b."""
        for age, letter in enumerate("cab"):
            append(open_store(letter), "x", length=5)
            past = time.time() - 1000 * age
            os.utime(folder(letter), (past, past))
        return {letter: folder(letter) for letter in "abc"}

    def test_stores_are_listed_by_time_of_use(self, stores):
        found = list_stores()
        assert [store.folder for store in found] == [stores[name] for name in "bac"]
        files = [path.stat().st_size for path in stores["b"].iterdir()]
        assert found[0].size == sum(files)
        assert (found[0].encoder, found[0].layer) == ("tiny", 2)
        assert (found[0].dtype, found[0].texts) == ("float32", 1)

    def test_opening_a_store_is_a_use(self, stores):
        open_store("b")
        assert list_stores()[-1].folder == stores["b"]

    def test_stores_are_pruned_by_time_of_use(self, stores):
        size = list_stores()[0].size
        assert prune_stores(3.0 * size) == []
        removed = prune_stores(2.5 * size)
        assert [store.folder for store in removed] == [stores["b"]]
        removed = prune_stores(0.0, keep=[stores["a"]])
        assert [store.folder for store in removed] == [stores["c"]]
        assert stores["a"].exists()

    def test_a_store_that_is_being_written_is_not_removed(self, stores):
        with open_store("b").lock:
            assert not remove_store(stores["b"])
            assert [store.folder for store in prune_stores(0.0)] == [
                stores["a"],
                stores["c"],
            ]
        assert remove_store(stores["b"])
        assert not remove_store(stores["b"])

    def test_damaged_stores_are_listed_and_removed(self, stores):
        (stores["b"] / "meta.json").write_text("{")
        (stores["a"] / "meta.json").unlink()
        assert sorted(store.encoder for store in list_stores()) == ["", "", "tiny"]
        assert len(prune_stores(0.0)) == 3
        assert list_stores() == []

    def test_other_files_are_never_removed(self, stores, tmp_path):
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "meta.json").write_text("{}")
        (states_folder() / "notes").mkdir()
        (states_folder() / "file").write_text("mine")
        (states_folder() / f"{'d' * 32}-1").symlink_to(outside)
        assert len(prune_stores(0.0)) == 3
        assert (outside / "meta.json").exists()
        assert (states_folder() / "notes").exists()
        assert (states_folder() / "file").exists()
