import numpy as np
import pytest
from perron_tests.errors import mentions

from perron.errors import DataError
from perron.text.vectors import read as read
from perron.text.vectors import read_vectors

NUMBERS = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def matrix(tmp_path):
    path = tmp_path / "vectors.npy"
    np.save(path, NUMBERS)
    return path


@pytest.mark.parametrize("suffix", [".txt", ".vocab"])
@pytest.mark.parametrize("block", [1, 24, 2**20])
def test_the_list_of_words_is_next_to_the_matrix(matrix, monkeypatch, suffix, block):
    monkeypatch.setattr(read, "_BLOCK_BYTES", block)
    matrix.with_suffix(suffix).write_bytes("a\nb c\r\né\na".encode())
    calls = []
    vectors = read_vectors(
        matrix, {"a", "é"}, progress=lambda *call: calls.append(call)
    )
    assert vectors.words == ["a", "é"]
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, NUMBERS[[0, 2]])
    assert calls[-1] == (32, 32)
    assert read_vectors(matrix, set(), first=2).words == ["a", "b c"]


def test_another_list_of_words_can_be_given(matrix, tmp_path):
    words = tmp_path / "other"
    words.write_text("p\nq\nr\ns\n")
    vectors = read_vectors(f"{matrix}::{words}", {"s"})
    np.testing.assert_array_equal(vectors.matrix, NUMBERS[3:])


def test_half_precision_becomes_float32(tmp_path):
    np.save(tmp_path / "v.npy", NUMBERS.astype(np.float16))
    (tmp_path / "v.txt").write_text("a\nb\nc\nd\n")
    vectors = read_vectors(tmp_path / "v.npy", {"b"})
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, NUMBERS[1:2])


@pytest.mark.parametrize("count", [3, 5])
def test_the_list_of_words_must_match_the_matrix(matrix, count):
    matrix.with_suffix(".txt").write_text("w\n" * count)
    with pytest.raises(DataError, match=mentions(matrix, 4, count)):
        read_vectors(matrix, {"w"})


def test_the_error_for_a_missing_file_names_it(matrix, tmp_path):
    with pytest.raises(
        DataError, match=mentions("vectors.txt", "vectors.vocab", "::words.txt")
    ):
        read_vectors(matrix, {"a"})
    with pytest.raises(DataError, match=mentions(tmp_path / "absent")):
        read_vectors(f"{matrix}::{tmp_path}/absent", {"a"})
    (tmp_path / "missing.txt").write_text("a\n")
    with pytest.raises(DataError, match=mentions(tmp_path / "missing.npy")):
        read_vectors(tmp_path / "missing.npy", {"a"})


@pytest.mark.parametrize("content", [np.zeros(4), np.array([["x"]]), np.array([{}])])
def test_only_numeric_matrices_are_read(matrix, content):
    matrix.with_suffix(".txt").write_text("a\n")
    np.save(matrix, content, allow_pickle=True)
    with pytest.raises(DataError, match=mentions(matrix, "matrix")):
        read_vectors(matrix, {"a"})


def test_nonfinite_values_of_wanted_words_are_an_error(matrix):
    numbers = NUMBERS.copy()
    numbers[2, 0] = np.nan
    np.save(matrix, numbers)
    matrix.with_suffix(".txt").write_text("a\nb\nc\nd\n")
    assert read_vectors(matrix, {"a", "d"}).words == ["a", "d"]
    with pytest.raises(DataError, match=mentions("row 3", "NaN", "'c'")):
        read_vectors(matrix, {"c", "d"})
    vectors = read_vectors(matrix, {"c", "d"}, skip_invalid=True)
    assert (vectors.words, vectors.skipped) == (["d"], 1)
    np.testing.assert_array_equal(vectors.matrix, NUMBERS[3:])


def test_a_list_of_words_must_be_utf8(matrix):
    matrix.with_suffix(".txt").write_bytes(b"a\nb\n\xff\nd\n")
    with pytest.raises(DataError, match=mentions("vectors.txt", "line 3", "UTF-8")):
        read_vectors(matrix, {"a"})
