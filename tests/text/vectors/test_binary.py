import gzip

import numpy as np
import pytest
from gensim.models import KeyedVectors
from perron_tests.errors import mentions

from perron.errors import DataError
from perron.text.vectors import read_vectors, streams

NUMBERS = np.array([[1, -2], [3, 4], [0.1, 5]], "<f4")


def content(newline=b"\n", numbers=NUMBERS, words=(b"a", b"caf\xc3\xa9", b"c")):
    rows = [
        w + b" " + v.tobytes() + newline for w, v in zip(words, numbers, strict=True)
    ]
    return b"3 2\n" + b"".join(rows)


def write(folder, data, name="vectors.bin"):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("newline", [b"", b"\n"])
@pytest.mark.parametrize("chunk", [1, 10, 2**20])
@pytest.mark.parametrize("name", ["v.bin", "v.bin.gz", "v"])
def test_wanted_words_are_read(tmp_path, monkeypatch, newline, chunk, name):
    monkeypatch.setattr(streams, "CHUNK", chunk)
    data = content(newline)
    path = write(tmp_path, gzip.compress(data) if "gz" in name else data, name)
    vectors = read_vectors(path, {"c", "café"})
    assert vectors.words == ["café", "c"]
    np.testing.assert_array_equal(vectors.matrix, NUMBERS[1:])
    assert read_vectors(path, {"c"}, first=1).words == ["a", "c"]


@pytest.mark.parametrize("chunk", [100, 2**20])
def test_vectors_saved_by_gensim_match_those_loaded_by_gensim(
    tmp_path, monkeypatch, chunk
):
    monkeypatch.setattr(streams, "CHUNK", chunk)
    table = KeyedVectors(9)
    numbers = np.random.default_rng(0).normal(size=(300, 9)).astype(np.float32)
    table.add_vectors([f"wörd{k}" for k in range(300)], numbers)
    path = tmp_path / "vectors"  # detected as binary by its content
    table.save_word2vec_format(path, binary=True)
    expected = KeyedVectors.load_word2vec_format(path, binary=True)
    vectors = read_vectors(path, set(expected.index_to_key))
    assert vectors.words == expected.index_to_key
    np.testing.assert_array_equal(vectors.matrix, expected.vectors)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nonfinite_values_of_wanted_words_are_an_error(tmp_path, value):
    numbers = NUMBERS.copy()
    numbers[1, 1] = value
    path = write(tmp_path, content(numbers=numbers))
    assert read_vectors(path, {"a", "c"}).words == ["a", "c"]
    with pytest.raises(
        DataError, match=mentions("row 2", "NaN", "café", "--skip-invalid")
    ):
        read_vectors(path, {"café", "c"})
    vectors = read_vectors(path, {"café", "c"}, skip_invalid=True)
    assert (vectors.words, vectors.skipped) == (["c"], 1)


def test_a_word_that_is_not_utf8_is_an_error(tmp_path):
    path = write(tmp_path, content(words=(b"a", b"\xff", b"c")))
    with pytest.raises(DataError, match=mentions("row 2", "UTF-8")):
        read_vectors(path, {"c"})
    vectors = read_vectors(path, {"c"}, skip_invalid=True)
    assert (vectors.words, vectors.skipped) == (["c"], 1)


@pytest.mark.parametrize("cut", [2, 9, 11])
def test_complete_rows_of_a_truncated_file_are_kept(tmp_path, cut):
    path = write(tmp_path, content()[:-cut])
    with pytest.raises(DataError, match=mentions(path, "row 3")):
        read_vectors(path, {"a"})
    vectors = read_vectors(path, {"a", "café", "c"}, skip_invalid=True)
    assert (vectors.words, vectors.skipped) == (["a", "café"], 1)
    np.testing.assert_array_equal(vectors.matrix, NUMBERS[:2])


def test_a_bin_file_without_header_is_rejected(tmp_path):
    path = write(tmp_path, b"\xba\x16\x4f\x2f\x0c")
    with pytest.raises(DataError, match=mentions(path, "word2vec binary")):
        read_vectors(path, {"a"})
