import gzip
import zipfile

import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from perron_tests.errors import mentions

from perron.errors import DataError, SettingsError
from perron.text.vectors import read_vectors, streams

SMALL = "the 0.5 -1 2e-1\nFilm 1.25 .5 -0.0\nat x@y.com 3 4. +5\n"
WORDS = ["the", "Film", "at x@y.com"]
NUMBERS = np.array([[0.5, -1, 0.2], [1.25, 0.5, -0.0], [3, 4, 5]], np.float32)


def write(folder, content, name="vectors.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_all(path):
    return read_vectors(path, set(), first=10**6)


def random_table(words=200, dim=7, seed=0):
    rng = np.random.default_rng(seed)
    table = KeyedVectors(dim)
    names = [f"wörd{k}" for k in range(words)]
    table.add_vectors(names, rng.normal(size=(words, dim)).astype(np.float32))
    return table


def test_wanted_words_are_read(tmp_path):
    path = write(tmp_path, SMALL)
    vectors = read_vectors(path, {"Film", "at x@y.com", "absent"})
    assert vectors.words == WORDS[1:]
    assert vectors.matrix.dtype == np.float32
    assert vectors.dim == 3
    np.testing.assert_array_equal(vectors.matrix, NUMBERS[1:])
    assert np.signbit(vectors.matrix[0, 2])


def test_the_first_words_are_always_kept(tmp_path):
    path = write(tmp_path, SMALL)
    assert read_vectors(path, {"at x@y.com"}, first=1).words == ["the", "at x@y.com"]
    assert read_vectors(path, set()).matrix.shape == (0, 3)
    with pytest.raises(SettingsError, match=mentions("first", -1)):
        read_vectors(path, set(), first=-1)


@pytest.mark.parametrize("first", [0, 10])
def test_the_first_row_of_a_repeated_word_is_kept(tmp_path, first):
    path = write(tmp_path, "a 1 2\nb 3 4\na 5 6\n")
    vectors = read_vectors(path, {"a", "b"}, first=first)
    assert vectors.words == ["a", "b"]
    np.testing.assert_array_equal(vectors.matrix, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "content",
    [
        SMALL.replace("\n", "\r\n"),
        SMALL.rstrip("\n"),
        SMALL.replace("\n", " \n"),
        SMALL.replace("\n", "\n\n"),
        SMALL.replace(" 0.5", "  0.5").replace(" -1", "   -1"),
        SMALL.replace(" -", "\t-"),
        "3 3\n" + SMALL,
        "3 3\r\n" + SMALL.replace("\n", "\r\n"),
    ],
    ids=[
        "crlf",
        "no final newline",
        "trailing space",
        "empty lines",
        "double spaces",
        "tabs",
        "header",
        "header crlf",
    ],
)
@pytest.mark.parametrize("chunk", [1, 5, 2**20])
def test_variants_of_the_format_are_read(tmp_path, monkeypatch, content, chunk):
    monkeypatch.setattr(streams, "CHUNK", chunk)
    vectors = read_all(write(tmp_path, content))
    assert vectors.words == WORDS
    np.testing.assert_array_equal(vectors.matrix, NUMBERS)


def test_the_dimension_is_detected_if_the_first_word_contains_spaces(tmp_path):
    vectors = read_all(write(tmp_path, ". . . 1 2\n. . 3 4\n7 5 6\n"))
    assert vectors.words == [". . .", ". .", "7"]
    assert vectors.dim == 2


def test_words_that_are_numbers_are_not_a_header(tmp_path):
    vectors = read_all(write(tmp_path, "5 3\n6 2\n7 8\n"))
    assert vectors.words == ["5", "6", "7"]
    np.testing.assert_array_equal(vectors.matrix, [[3], [2], [8]])


@pytest.mark.parametrize("header", [True, False])
def test_vectors_saved_by_gensim_match_those_loaded_by_gensim(tmp_path, header):
    path = tmp_path / "vectors.txt"
    random_table().save_word2vec_format(path, binary=False)
    expected = KeyedVectors.load_word2vec_format(path)
    if not header:  # gensim does not close such a file and warns
        path.write_bytes(path.read_bytes().partition(b"\n")[2])
    vectors = read_all(path)
    assert vectors.words == expected.index_to_key
    np.testing.assert_array_equal(vectors.matrix, expected.vectors)


@pytest.mark.parametrize("chunk", [1, 3, 64, 1000])
def test_the_chunk_size_does_not_change_the_result(tmp_path, monkeypatch, chunk):
    path = tmp_path / "vectors.txt"
    random_table().save_word2vec_format(path, binary=False)
    expected = read_all(path)
    monkeypatch.setattr(streams, "CHUNK", chunk)
    result = read_all(path)
    assert len(result.words) == 200
    assert result.words == expected.words
    np.testing.assert_array_equal(result.matrix, expected.matrix)


DECIMALS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.from_regex(
        r"[+-]?[0-9]{1,22}(\.[0-9]{0,22})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
    ),
    st.from_regex(r"-?[01]\.[0-9]{4,6}", fullmatch=True),
    st.from_regex(r"[+-]?\.[0-9]{1,17}", fullmatch=True),
)


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(numbers=st.lists(DECIMALS, min_size=1, max_size=40))
@example(numbers=["9007199254740993", "0.1", "1e22", "1e23", "123456789012345678e-22"])
@example(numbers=["0.18972919136285783", "0.81619670987129217"])  # more than 2⁵³
@example(numbers=["16777217", "1.1754943508222875e-38", "1e-45", "3.4028235e38"])
def test_numbers_are_parsed_as_by_numpy(tmp_path, numbers):
    with np.errstate(over="ignore"):
        expected = np.array([np.float32(text) for text in numbers])
    numbers = [
        t for t, value in zip(numbers, expected, strict=True) if np.isfinite(value)
    ]
    expected = expected[np.isfinite(expected)]
    content = "word 0.5\n" + "".join(f"w{k} {t}\n" for k, t in enumerate(numbers))
    vectors = read_all(write(tmp_path, content))
    np.testing.assert_array_equal(vectors.matrix[1:, 0], expected)
    np.testing.assert_array_equal(
        np.signbit(vectors.matrix[1:, 0]), np.signbit(expected)
    )


INVALID = {
    "c 1 nan": ("'nan'", "float32"),
    "c 1 -inf": ("'-inf'", "float32"),
    "c 1 1e39": ("'1e39'", "float32"),
    "c 1": (1, 2),
    "c": (0, 2),
    "c 1.0 2.0 3.0": (3, 2),
    "c x 2": ("'x'", "number"),
    "c 1,5 2": ("'1,5'", "number"),
    "c 1_0 2": ("'1_0'", "number"),
    "c 1 2e": ("'2e'", "number"),
    "c 1 -": ("'-'", "number"),
    "c 1 2x": ("'2x'", "number"),
    "c 1.5.5 2": ("'1.5.5'", "number"),
    "c 1 .": ("'.'", "number"),
    " 1 2": ("word", "before the numbers"),
}


@pytest.mark.parametrize("row", INVALID)
@pytest.mark.parametrize("chunk", [4, 2**20])
def test_invalid_rows_are_reported_or_skipped(tmp_path, monkeypatch, row, chunk):
    monkeypatch.setattr(streams, "CHUNK", chunk)
    path = write(tmp_path, f"a 1 2\n\nb 3 4\n{row}\nd 5 6\n")
    with pytest.raises(
        DataError, match=mentions(*INVALID[row], "--skip-invalid")
    ) as caught:
        read_vectors(path, {"a", "c", "d"})
    assert str(caught.value).startswith(f"{path}, line 4: ")
    vectors = read_vectors(path, {"a", "c", "d"}, skip_invalid=True)
    assert vectors.words == ["a", "d"]
    assert vectors.skipped == 1
    np.testing.assert_array_equal(vectors.matrix, [[1, 2], [5, 6]])


def test_a_word_that_is_not_utf8_is_an_error(tmp_path):
    path = write(tmp_path, b"a 1 2\n\xe9t\xe9 3 4\nd 5 6\n")
    with pytest.raises(DataError, match=mentions("line 2", "UTF-8")):
        read_vectors(path, {"d"})
    assert read_vectors(path, {"d"}, skip_invalid=True).skipped == 1


def test_numbers_of_unwanted_words_are_not_checked(tmp_path):
    path = write(tmp_path, "a 1 2\nb x nan\n")
    assert read_vectors(path, {"a"}).words == ["a"]


def test_fewer_rows_than_in_the_header_are_an_error(tmp_path):
    path = write(tmp_path, "4 2\na 1 2\nb 3 4\n")
    with pytest.raises(DataError, match=mentions("line 3", "header", 4)):
        read_all(path)
    assert read_vectors(path, {"b"}, skip_invalid=True).skipped == 1


def test_fewer_numbers_than_in_the_header_are_an_error(tmp_path):
    path = write(tmp_path, "2 3\na 1 2\nb 3 4\n")
    with pytest.raises(DataError, match=mentions("line 2", 2, 3)):
        read_vectors(path, {"a"})


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file_is_rejected(tmp_path, content):
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=mentions(path, "empty")):
        read_all(path)


def test_a_file_without_vectors_is_rejected(tmp_path):
    with pytest.raises(DataError, match=mentions(tmp_path / "absent.txt")):
        read_all(tmp_path / "absent.txt")
    with pytest.raises(DataError, match=mentions(tmp_path, "directory")):
        read_all(tmp_path)
    path = write(tmp_path, "once upon a time\nthere was a file\n")
    with pytest.raises(DataError, match=mentions(path, "GloVe", "word2vec", ".npy")):
        read_all(path)


def test_the_length_of_a_row_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "CHUNK", 8)
    monkeypatch.setattr(streams, "_MAX_ROW_BYTES", 64)
    with pytest.raises(DataError, match=mentions(64, "bytes")):
        read_all(write(tmp_path, "a 1\n" + "b" * 200))


@pytest.mark.parametrize("chunk", [7, 2**20])
def test_gzip_and_zip_files_are_decompressed(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(streams, "CHUNK", chunk)
    packed = write(tmp_path, gzip.compress(SMALL.encode()), "vectors.txt.gz")
    archive = tmp_path / "one.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("folder/", "")
        file.writestr("folder/v.txt", SMALL)
    for path in (packed, archive, f"{archive}::folder/v.txt"):
        vectors = read_all(path)
        assert vectors.words == WORDS
        np.testing.assert_array_equal(vectors.matrix, NUMBERS)


def test_a_member_of_an_archive_must_be_selected(tmp_path):
    archive = tmp_path / "two.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.txt", "a 1\n")
        file.writestr("b.txt", "b 2\n")
    assert read_all(f"{archive}::b.txt").words == ["b"]
    with pytest.raises(DataError, match=mentions("two.zip::a.txt", "b.txt")):
        read_all(archive)
    with pytest.raises(DataError, match=mentions("c.txt", "a.txt", "b.txt")):
        read_all(f"{archive}::c.txt")
    path = write(tmp_path, SMALL)
    with pytest.raises(DataError, match=mentions(path, "a.txt", "zip")):
        read_all(f"{path}::a.txt")


@pytest.mark.parametrize("cut", [8, 60, 900])
def test_complete_rows_of_a_truncated_gzip_file_are_kept(tmp_path, cut):
    rows = [f"word{k} {k}.25 -{k}.5\n" for k in range(500)]
    packed = gzip.compress("".join(rows).encode())[:-cut]
    path = write(tmp_path, packed, "v.gz")
    with pytest.raises(DataError, match=mentions(path)):
        read_all(path)
    vectors = read_vectors(path, set(), first=500, skip_invalid=True)
    assert vectors.skipped == 1
    assert 0 < len(vectors.words) <= 500
    expected = np.arange(len(vectors.words))
    np.testing.assert_array_equal(vectors.matrix[:, 0], expected + 0.25)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_progress_increases_to_the_file_size(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(streams, "CHUNK", 16)
    content = SMALL.encode()
    content = gzip.compress(content) if suffix else content
    path = write(tmp_path, content, f"v.txt{suffix}")
    calls = []
    read_vectors(path, set(), progress=lambda *call: calls.append(call))
    done, totals = zip(*calls, strict=True)
    assert len(calls) > 2
    assert list(done) == sorted(done)
    assert done[-1] == path.stat().st_size
    assert set(totals) == {path.stat().st_size}
