import numpy as np
import pytest
import torch
from perron_tests.training import tiny_table, write_texts

from perron.training import metrics, read_recipe
from perron.training.metrics import _measured, measure_graphs
from perron.training.prepare import prepare


def by_hand(graph: np.ndarray) -> tuple[float, float]:
    """Both numbers of one graph, from their definitions."""
    shares = [row.std() / row.mean() for row in graph]
    weights = [row.mean() for row in graph]
    sizes = sorted(abs(np.linalg.eigvals(graph)), reverse=True)
    return float(np.average(shares, weights=weights)), float(sizes[1])


def columns(rng: np.random.Generator, n: int) -> np.ndarray:
    graph = rng.gamma(0.5, size=(n, n)) + 1e-3
    return graph / graph.sum(0)


def test_the_statistics_match_their_definitions():
    rng = np.random.default_rng(0)
    sizes = [2, 5, 3, 7]
    graphs = [columns(rng, n) for n in sizes]
    others = [columns(rng, n) for n in sizes]
    padded = torch.zeros(4, 2, 7, 7)
    for row, heads in enumerate(zip(graphs, others, strict=True)):
        for head, graph in enumerate(heads):
            n = len(graph)
            padded[row, head, :n, :n] = torch.from_numpy(graph)
    expected = np.mean([[by_hand(g) for g in head] for head in (graphs, others)], 0)
    np.testing.assert_allclose(_measured(padded), expected, rtol=1e-5)


def test_texts_with_fewer_than_two_words_are_skipped():
    edges = torch.zeros(2, 1, 3, 3)
    edges[1, 0, 0, 0] = 1
    assert _measured(edges).shape == (0, 2)


def test_two_disconnected_halves_have_a_second_eigenvalue_of_one():
    half = torch.full((2, 2), 0.5)
    edges = torch.block_diag(half, half)[None, None]
    dependence, second = _measured(edges)[0]
    assert second == pytest.approx(1)
    assert dependence == pytest.approx(1)  # entries are 0.5, 0.5, 0 and 0


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts") / "texts.csv", rows=150)


def prepared(texts, aggregator):
    table = tiny_table(texts)
    table["model"]["aggregator"] = aggregator
    return prepare(read_recipe(table))


def test_a_shared_query_is_self_attention(texts):
    ready = prepared(texts, {"name": "centrality", "connectivity": "query"})
    (found,) = measure_graphs(ready.model, ready.train)
    assert found.level == "words"
    assert found.context_dependence == pytest.approx(0, abs=1e-6)
    assert found.second_eigenvalue == pytest.approx(0, abs=1e-6)


def test_all_heads_are_measured_and_training_mode_is_restored(texts):
    ready = prepared(texts, {"name": "centrality", "heads": 2})
    ready.model.train()
    (found,) = measure_graphs(ready.model, ready.train, max_texts=10)
    assert ready.model.training
    assert 5 < found.texts <= 10
    assert found.context_dependence > 0
    assert 0 < found.second_eigenvalue < 1


def test_an_aggregator_without_a_graph_has_no_measures(texts):
    ready = prepared(texts, "mean")
    assert measure_graphs(ready.model, ready.train) == []


def test_long_texts_are_skipped(texts, monkeypatch):
    """A graph of low rank is never whole, and of a long text must not be."""
    ready = prepared(texts, {"name": "centrality", "connectivity": "low_rank"})
    sizes = np.sort(ready.train.sizes)
    monkeypatch.setattr(metrics, "MAX_WORDS", sizes[40])
    (found,) = measure_graphs(ready.model, ready.train)
    assert found.texts == ((sizes > 1) & (sizes <= sizes[40])).sum()
    monkeypatch.setattr(metrics, "MAX_WORDS", 0)
    assert measure_graphs(ready.model, ready.train) == []
