import gzip
import json
import tracemalloc

import numpy as np
import pytest
from perron_tests.errors import mentions

from perron.errors import DataError
from perron.text.vectors import read as wink
from perron.text.vectors import read_vectors

# As on npm, the vector is followed by its norm and the index of the word.
VECTORS = {
    "the": [0.5, -1.25, 3e-2, 1.35, 0],
    'quote"d': [1, 2, 3, 3.7, 1],
    "é": [4, 5, 6, 8.8, 2],
    "back\\slash": [7, 8, 9, 13.9, 3],
    "last": [-1, -2, -3, 3.7, 4],
}


def content(vectors, dimensions=3):
    return json.dumps(
        {
            "precision": 8,
            "wordIndex": 4,
            "dimensions": dimensions,
            "words": list(vectors),
            "vectors": vectors,
            "unkVector": [0] * 5,
        },
        separators=(",", ":"),
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vectors.json"
    path.write_text(content(VECTORS))
    return path


# From the length of the longest entry, so that chunks end at every position.
@pytest.mark.parametrize("chunk", [*range(35, 120), 2**20])
def test_the_chunk_size_does_not_change_the_result(file, monkeypatch, chunk):
    monkeypatch.setattr(wink, "CHUNK", chunk)
    vectors = read_vectors(file, set(VECTORS))
    assert vectors.words == list(VECTORS)
    expected = np.array([row[:3] for row in VECTORS.values()], np.float32)
    np.testing.assert_array_equal(vectors.matrix, expected)


def test_wanted_words_are_kept_and_progress_is_reported(file):
    calls = []
    vectors = read_vectors(
        file, {"last", "é", "none"}, first=1, progress=lambda *call: calls.append(call)
    )
    assert vectors.words == ["the", "é", "last"]
    assert calls[-1] == (file.stat().st_size,) * 2


def test_a_compressed_file_is_read(file, tmp_path):
    packed = tmp_path / "packed.json"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert read_vectors(packed, {"last"}).words == ["last"]


@pytest.mark.parametrize(
    "row", [[1, 2], [1, 2, "x", 0, 0], [1, 2, float("nan"), 0, 0], []]
)
def test_invalid_rows_are_reported_or_skipped(tmp_path, row):
    path = tmp_path / "bad.json"
    path.write_text(content(VECTORS | {"bad": row}))
    with pytest.raises(DataError, match=mentions(path, "'bad'", 3)):
        read_vectors(path, {"bad"})
    vectors = read_vectors(path, {"bad", "the"}, skip_invalid=True)
    assert (vectors.words, vectors.skipped) == (["the"], 1)
    assert read_vectors(path, {"the"}).words == ["the"]  # not checked if unwanted


def test_a_truncated_file_is_an_error(file):
    file.write_text(file.read_text()[:150])
    with pytest.raises(DataError, match=mentions(file, '"quote')):
        read_vectors(file, {"last"})


def test_a_word_that_is_not_json_is_an_error(file):
    file.write_text(file.read_text().replace('"last":', r'"l\x":'))
    with pytest.raises(DataError, match=mentions(file, "word", "JSON")):
        read_vectors(file, {"the"})


@pytest.mark.parametrize("text", ["{}", "[]", "", '{"vectors":{}}'])
def test_other_json_is_rejected(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(DataError, match=mentions(path, "winkNLP")):
        read_vectors(path, {"a"})


def test_memory_use_does_not_grow_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(wink, "CHUNK", 2**16)
    path = tmp_path / "large.json"
    numbers = [0.123456] * 100
    path.write_text(content({f"word{row}": numbers for row in range(8000)}, 100))
    tracemalloc.start()
    read_vectors(path, {"word5"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < path.stat().st_size / 4
