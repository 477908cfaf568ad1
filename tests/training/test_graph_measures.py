import numpy as np
import pytest
import torch
from perron_tests.training import tiny_table, write_texts

from perron.training import metrics, read_recipe
from perron.training.metrics import _graph_statistics, measure_graphs
from perron.training.prepare import prepare


def reference_statistics(graph: np.ndarray) -> tuple[float, float]:
    """Return the statistics of one graph from their definitions."""
    variation = [row.std() / row.mean() for row in graph]
    weights = [row.mean() for row in graph]
    eigenvalues = sorted(abs(np.linalg.eigvals(graph)), reverse=True)
    return float(np.average(variation, weights=weights)), float(eigenvalues[1])


def random_graph(rng: np.random.Generator, n: int) -> np.ndarray:
    graph = rng.gamma(0.5, size=(n, n)) + 1e-3
    return graph / graph.sum(0)


def test_the_statistics_match_their_definitions():
    rng = np.random.default_rng(0)
    sizes = [2, 5, 3, 7]
    heads = [[random_graph(rng, n) for n in sizes] for _ in range(2)]
    padded = torch.zeros(4, 2, 7, 7)
    for head, graphs in enumerate(heads):
        for row, graph in enumerate(graphs):
            n = len(graph)
            padded[row, head, :n, :n] = torch.from_numpy(graph)
    expected = np.mean([[reference_statistics(g) for g in head] for head in heads], 0)
    np.testing.assert_allclose(_graph_statistics(padded), expected, rtol=1e-5)


def test_texts_with_fewer_than_two_words_are_skipped():
    edges = torch.zeros(2, 1, 3, 3)
    edges[1, 0, 0, 0] = 1
    assert _graph_statistics(edges).shape == (0, 2)


def test_two_disconnected_halves_have_a_second_eigenvalue_of_one():
    half = torch.full((2, 2), 0.5)
    edges = torch.block_diag(half, half)[None, None]
    dependence, eigenvalue = _graph_statistics(edges)[0]
    assert eigenvalue == pytest.approx(1)
    assert dependence == pytest.approx(1)  # entries are 0.5, 0.5, 0 and 0


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts") / "texts.csv", rows=150)


def prepared(texts, aggregator):
    table = tiny_table(texts)
    table["model"]["aggregator"] = aggregator
    return prepare(read_recipe(table))


def test_a_shared_query_is_self_attention(texts):
    run = prepared(texts, {"name": "centrality", "connectivity": "query"})
    (measure,) = measure_graphs(run.model, run.train)
    assert measure.level == "words"
    assert measure.context_dependence == pytest.approx(0, abs=1e-6)
    assert measure.second_eigenvalue == pytest.approx(0, abs=1e-6)


def test_all_heads_are_measured_and_training_mode_is_restored(texts):
    run = prepared(texts, {"name": "centrality", "num_heads": 2})
    run.model.train()
    (measure,) = measure_graphs(run.model, run.train, max_texts=10)
    assert run.model.training
    assert 5 < measure.texts <= 10
    assert measure.context_dependence > 0
    assert 0 < measure.second_eigenvalue < 1


def test_an_aggregator_without_a_graph_has_no_measures(texts):
    run = prepared(texts, "mean")
    assert measure_graphs(run.model, run.train) == []


def test_long_texts_are_skipped(texts, monkeypatch):
    """The full matrix of a low-rank graph must not be built for a long text."""
    run = prepared(texts, {"name": "centrality", "connectivity": "low_rank"})
    sizes = np.sort(run.train.sizes)
    monkeypatch.setattr(metrics, "MAX_WORDS", sizes[40])
    (measure,) = measure_graphs(run.model, run.train)
    assert measure.texts == ((sizes > 1) & (sizes <= sizes[40])).sum()
    monkeypatch.setattr(metrics, "MAX_WORDS", 0)
    assert measure_graphs(run.model, run.train) == []
