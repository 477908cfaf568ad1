import numpy as np
import pytest

from perron.text.vectors import (
    Coverage,
    WordVectors,
    coverage,
    embedding_matrix,
    table,
    wanted_words,
)

SMALL = WordVectors(["the", "Film", "film"], np.eye(3, dtype=np.float32))


def random_vectors(words, dim, seed=0, mean=0.0):
    numbers = np.random.default_rng(seed).normal(mean, 0.3, (len(words), dim))
    return WordVectors(list(words), numbers.astype(np.float32))


def test_words_are_looked_up_as_written_then_in_lowercase():
    words = ["THE", "Film", "FILM", "none", "the"]
    assert SMALL.lookup(words).tolist() == [0, 1, 2, -1, 0]
    assert wanted_words(words) == {"THE", "the", "Film", "film", "FILM", "none"}


def test_coverage_counts_types_and_tokens():
    result = coverage(SMALL, {"the": 6, "The": 2, "actor": 1, "Film": 1})
    assert result == Coverage(types=4, types_found=3, tokens=10, tokens_found=9)
    assert str(result) == "3 of 4 words (75.0 %), 90.0 % of their occurrences"
    assert "14,210 of 14,816 words (95.9 %), 98.7 %" in str(
        Coverage(14_816, 14_210, 1000, 987)
    )
    assert "0 of 0 words (0.0 %)" in str(coverage(SMALL, {}))


def test_vectors_of_sources_are_concatenated():
    other = random_vectors(["actor", "the"], 5)
    matrix, found = embedding_matrix(["<unk>", "The", "actor"], [SMALL, other], seed=0)
    assert matrix.shape == (3, 8)
    assert matrix.dtype == np.float32
    assert found.tolist() == [False, True, True]
    np.testing.assert_array_equal(matrix[1, :3], SMALL.matrix[0])
    np.testing.assert_array_equal(matrix[1:, 3:], other.matrix[[1, 0]])
    # Random, because the first source does not have the word.
    assert np.abs(matrix[2, :3]).max() > 0


def test_random_vectors_depend_on_the_seed():
    words = ["<unk>", "x", "the", "y"]
    first, _ = embedding_matrix(words, [SMALL], seed=3)
    again, _ = embedding_matrix(words, [SMALL], seed=3)
    other, _ = embedding_matrix(words, [SMALL], seed=4)
    np.testing.assert_array_equal(first, again)
    assert (first[0] != other[0]).all()
    assert (first[0] != first[1]).all()
    longer, _ = embedding_matrix([*words, "z"], [SMALL], seed=3)
    np.testing.assert_array_equal(longer[:4], first)  # only the index of a word matters


def test_sources_have_different_random_vectors():
    matrix, _ = embedding_matrix(["x", "the"], [SMALL, SMALL], seed=0)
    assert (matrix[0, :3] != matrix[0, 3:]).all()


@pytest.mark.parametrize("block", [7, 10_000])
def test_random_vectors_have_the_standard_deviation_of_the_vectors_found(
    monkeypatch, block
):
    monkeypatch.setattr(table, "_BLOCK", block)
    source = random_vectors([f"w{k}" for k in range(200)], 40, mean=1.0)
    words = [f"w{k}" for k in range(100)] + [f"missing{k}" for k in range(300)]
    matrix, found = embedding_matrix(words, [source], seed=0)
    assert found.sum() == 100
    np.testing.assert_array_equal(matrix[:100], source.matrix[:100])
    std = source.matrix[:100].std(dtype=np.float64)
    random = matrix[100:]
    # The standard error of the deviation of 12,000 values is about 0.5 %.
    np.testing.assert_allclose(random.std(), std, rtol=0.02)
    np.testing.assert_allclose(np.abs(random).max(), np.sqrt(3) * std, rtol=0.01)
    assert abs(random.mean()) < 0.02


def test_if_no_word_is_found_the_standard_deviation_is_that_of_the_source():
    source = random_vectors([f"w{k}" for k in range(200)], 40)
    matrix, found = embedding_matrix([f"m{k}" for k in range(200)], [source], seed=0)
    assert not found.any()
    np.testing.assert_allclose(matrix.std(), source.matrix.std(), rtol=0.03)
    empty = WordVectors([], np.empty((0, 25), np.float32))
    matrix, _ = embedding_matrix([f"m{k}" for k in range(200)], [empty], seed=0)
    np.testing.assert_allclose(matrix.std(), 0.2, rtol=0.03)


def test_sources_are_scaled_to_the_same_standard_deviation():
    rng = np.random.default_rng(0)
    words = [f"w{row}" for row in range(400)]
    small = WordVectors(words[:300], rng.normal(0, 0.1, (300, 20)).astype(np.float32))
    large = WordVectors(words[:300], rng.normal(0, 5, (300, 30)).astype(np.float32))
    matrix, found = embedding_matrix(words, [small, large], seed=0, std=0.5)
    plain, _ = embedding_matrix(words, [small, large], seed=0)
    for part in (slice(0, 20), slice(20, 50)):
        assert matrix[:300, part].std() == pytest.approx(0.5, rel=1e-5)
        assert matrix[300:, part].std() == pytest.approx(0.5, rel=0.1)  # random
        factor = matrix[0, part] / plain[0, part]
        np.testing.assert_allclose(matrix[:, part], factor * plain[:, part], rtol=1e-4)
    assert found.sum() == 300
    zeros = WordVectors(["w0"], np.zeros((1, 3), np.float32))
    matrix, _ = embedding_matrix(["w0"], [zeros], seed=0, std=0.5)
    assert not matrix.any()  # no division by zero
