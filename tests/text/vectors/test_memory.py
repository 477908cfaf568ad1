import tracemalloc

import numpy as np

from perron.text.vectors import read_vectors, streams, table

DIM = 100


def write_rows(path, count):
    row = " ".join(["-0.12345"] * DIM)
    with path.open("w") as file:
        file.writelines(f"word{k} {row}\n" for k in range(count))


def peak_beyond_result(path, wanted):
    tracemalloc.start()
    vectors = read_vectors(path, wanted)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(vectors.words) == len(wanted)
    return peak - vectors.matrix.nbytes


def test_memory_use_does_not_grow_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "CHUNK", 2**16)
    monkeypatch.setattr(streams, "_HEAD_BYTES", 2**16)
    monkeypatch.setattr(table, "_GROWTH_BYTES", 2**16)
    path = tmp_path / "vectors.txt"
    write_rows(path, 8000)  # 7 MB; 3 MB as a matrix
    read_vectors(path, {"word1"})  # warm up
    few = {f"word{k}" for k in range(0, 8000, 100)}
    assert peak_beyond_result(path, few) < 0.6e6
    every = {f"word{k}" for k in range(8000)}
    assert peak_beyond_result(path, every) < 2.4e6  # of which 1.4e6 for the words


def test_growing_the_matrix_keeps_its_rows(monkeypatch):
    monkeypatch.setattr(table, "_GROWTH_BYTES", 4 * 2 * 3)  # three rows
    collector = table.VectorCollector("name", {f"{k}" for k in range(20)}, 0, False)
    vectors = np.arange(40, dtype=np.float32).reshape(20, 2)
    for begin, end in ((0, 2), (2, 3), (3, 11), (11, 20)):
        collector.add([f"{k}" for k in range(begin, end)], vectors[begin:end])
    np.testing.assert_array_equal(collector.result(2).matrix, vectors)
