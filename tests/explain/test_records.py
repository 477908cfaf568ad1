import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from perron_tests.models import AGGREGATORS, LABELS
from perron_tests.pipelines import OTHERS, TEXTS, arguments, small_pipeline

from perron.explain import ModelInfo, explain
from perron.explain.flow import node_weights
from perron.pooling.centrality import PowerIteration

WITH_EDGES = [name for name in AGGREGATORS if name.startswith("centrality")]


def check_graph(graph, text):
    """Check the invariants of a graph."""
    count = len(graph.nodes)
    assert [text[start:end] for start, end in graph.spans] == graph.nodes
    assert all(start < end for start, end in graph.spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(graph.spans))
    if graph.weights is None:
        assert graph.heads == []
        return
    mean = np.mean([head.weights for head in graph.heads], axis=0)
    np.testing.assert_allclose(graph.weights, mean, rtol=1e-12)
    for head in graph.heads:
        assert len(head.weights) == count
        assert all(weight >= 0 for weight in head.weights)
        np.testing.assert_allclose(sum(head.weights), min(count, 1), rtol=1e-9)
        assert (head.edges is None) == (head.solver is None)
    if graph.has_edges:
        for index, head in enumerate(graph.heads):
            check_edges(graph.edges(index), head)
        mean = np.mean(
            [np.reshape(head.edges, (count, count)) for head in graph.heads], 0
        )
        np.testing.assert_allclose(graph.edges(), mean, rtol=1e-12)


def check_edges(edges, head):
    weights = np.array(head.weights)
    assert (edges > 0).all()
    np.testing.assert_allclose(edges.sum(0), 1, rtol=1e-5)
    assert head.solver.method == "direct"
    assert head.solver.iterations is head.solver.converged is None
    if len(weights):
        residual = np.linalg.norm(edges @ weights - weights) / np.linalg.norm(weights)
        # The edges of the record are rounded; its residual is that of the exact edges.
        assert head.solver.residual == pytest.approx(residual, abs=1e-6)
        assert head.solver.residual < 1e-6


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_records_are_valid_and_agree_with_predict(kind, aggregator):
    pipeline = small_pipeline(kind, aggregator)
    inputs = arguments(pipeline)
    probabilities = pipeline.predict_proba(*inputs)
    labels = pipeline.predict(*inputs)
    for row, texts in enumerate(zip(*inputs, strict=True)):
        record = pipeline.explain(*texts)
        assert (record.text, record.pair) == (*texts, None)[:2]
        assert record.label == labels[row]
        assert list(record.probabilities) == list(LABELS)
        np.testing.assert_allclose(
            list(record.probabilities.values()), probabilities[row], atol=1e-6
        )
        if kind == "document":
            assert len(record.words) == len(record.sentences.nodes)
            check_graph(record.sentences, texts[0])
            for graph, span in zip(record.words, record.sentences.spans, strict=True):
                check_graph(graph, texts[0])
                assert graph.spans[0][0] == span[0]
                assert graph.spans[-1][1] == span[1]
        else:
            assert record.sentences is None
            for graph, text in zip(record.words, texts, strict=True):
                check_graph(graph, text)
        for graph in record.graphs:
            assert graph.has_edges == (aggregator in WITH_EDGES)
            assert (graph.weights is not None) == (aggregator != "max")
        json.dumps(dataclasses.asdict(record))  # plain values only


def test_a_record_describes_its_model():
    pipeline = small_pipeline("pair", "self-attention", encoder="cnn")
    pipeline.name = "mine"
    record = pipeline.explain("a film", "the film")
    assert record.model == ModelInfo("mine", "pair", "cnn", "self-attention")


def test_words_are_spelled_as_in_the_text():
    text = "It wasn't  a GOOD film ."
    (graph,) = small_pipeline("text").explain(text).words
    assert graph.nodes == ["It", "was", "n't", "a", "GOOD", "film", "."]


@pytest.mark.parametrize(("count", "truncated"), [(10, False), (11, True), (12, True)])
def test_a_long_text_has_only_the_words_that_the_model_reads(count, truncated):
    (graph,) = small_pipeline("text").explain(" ".join(["film"] * count)).words
    assert len(graph.nodes) == len(graph.weights) == len(graph.edges()) == 10
    assert graph.truncated == truncated


def test_documents_are_split_into_sentences_and_truncated():
    text = "Good film. It was good!\nThe film was bad? Not it. The end."
    record = small_pipeline("document").explain(text)
    assert record.sentences.nodes == [
        "Good film.",
        "It was good!",
        "The film was bad?",
        "Not it.",
    ]
    assert [len(graph.nodes) for graph in record.words] == [3, 4, 5, 3]
    assert record.sentences.truncated
    assert not any(graph.truncated for graph in record.words)
    long = small_pipeline("document").explain("It was good. " + "film " * 12)
    assert [graph.truncated for graph in long.words] == [False, True]
    assert not long.sentences.truncated


def check_numbers(graph, pooled, row=0):
    """Compare a graph with the output of the aggregator."""
    count = len(graph.nodes)
    assert len(graph.heads) == pooled.head_weights.shape[1]
    for index, head in enumerate(graph.heads):
        weights = pooled.head_weights[row, index, :count]
        edges = pooled.head_edges[row, index, :count, :count]
        np.testing.assert_allclose(head.weights, weights / weights.sum(), rtol=1e-5)
        np.testing.assert_allclose(head.edges, edges, rtol=1e-5)


@pytest.mark.parametrize("aggregator", ["centrality", "centrality, l2"])
def test_weights_and_edges_are_those_of_the_model(aggregator):
    pipeline = small_pipeline("pair", aggregator)
    record = pipeline.explain("the film was good", "bad film")
    ids, other = torch.tensor([5, 2, 7, 3]), torch.tensor([4, 2])
    for graph, row in zip(record.words, (ids, other), strict=True):
        with torch.inference_mode():
            pooled = pipeline.model.pool(row.unsqueeze(0), need_edges=True)
        check_numbers(graph, pooled)


@pytest.mark.parametrize("aggregator", ["centrality", "centrality, l2"])
def test_weights_and_edges_of_a_document_are_those_of_its_sentences(aggregator):
    pipeline = small_pipeline("document", aggregator)
    model = pipeline.model
    record = pipeline.explain("the film was good. bad film. it was not.")
    rows = [torch.tensor(ids) for ids in ([5, 2, 7, 3, 8], [4, 2, 8], [6, 7, 9, 8])]
    vectors = []
    with torch.inference_mode():
        for graph, row in zip(record.words, rows, strict=True):
            states = model.encoder(model.embedding(row.unsqueeze(0)))
            pooled = model.aggregator(states, need_edges=True)
            vectors.append(pooled.vector)
            check_numbers(graph, pooled)
        states = model.sentence_encoder(torch.stack(vectors, 1))
        pooled = model.sentence_aggregator(states, need_edges=True)
    check_numbers(record.sentences, pooled)


def test_weights_of_self_attention_are_those_of_each_head():
    pipeline = small_pipeline("text", "self-attention")
    (graph,) = pipeline.explain("the film was good").words
    with torch.inference_mode():
        pooled = pipeline.model(torch.tensor([[5, 2, 7, 3]])).pooled[0]
    assert len(graph.heads) == 2
    for head, weights in zip(graph.heads, pooled.head_weights[0], strict=True):
        np.testing.assert_allclose(head.weights, weights, rtol=1e-5)
        assert head.edges is head.solver is None


@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_power_iteration_reports_convergence(kind):
    pipeline = small_pipeline(kind, aggregator="centrality", encoder="bilstm")
    aggregators = [
        module
        for name, module in pipeline.model.named_modules()
        if name.endswith("aggregator")
    ]
    texts = ("the film was good. it was not bad.", "a film")[: 1 + (kind == "pair")]
    for max_iter, converged in ((200, True), (1, False)):
        for aggregator in aggregators:
            aggregator.solver = PowerIteration(max_iter=max_iter)
        for graph in pipeline.explain(*texts).graphs:
            (head,) = graph.heads
            assert head.solver.method == "power"
            assert head.solver.converged == converged
            assert 1 <= head.solver.iterations <= max_iter
            edges, weights = graph.edges(0), np.array(head.weights)
            residual = np.linalg.norm(edges @ weights - weights)
            residual /= np.linalg.norm(weights)
            assert head.solver.residual == pytest.approx(residual, abs=1e-6, rel=1e-3)
            assert converged == (residual < 1e-5)


@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_the_graphs_of_an_empty_text_have_no_nodes(kind):
    pipeline = small_pipeline(kind)
    record = pipeline.explain(*arguments(pipeline, " ", ""))
    graphs = record.words if kind != "document" else [record.sentences]
    assert len(graphs) == (2 if kind == "pair" else 1)
    for graph in graphs:
        assert (graph.nodes, graph.spans, graph.weights) == ([], [], [])
        assert [(head.weights, head.edges) for head in graph.heads] == [([], [])]
        assert graph.edges().shape == (0, 0)
    assert kind != "document" or record.words == []


def test_levels_may_have_different_aggregators():
    pipeline = small_pipeline("document", "max", sentence_aggregator="centrality")
    record = pipeline.explain("good film. bad film.")
    assert record.sentences.weights is not None
    assert record.sentences.has_edges
    assert record.has_edges
    assert [graph.weights for graph in record.words] == [None, None]
    assert [node_weights(graph) for graph in record.words] == [None, None]


def test_penn_treebank_escapes_keep_their_spans():
    text = "a -LRB- good -RRB- film ``it was''"
    (graph,) = small_pipeline("text").explain(text).words
    check_graph(graph, text)
    assert "-LRB-" in graph.nodes
    assert "``" in graph.nodes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_sum_to_one_in_every_precision(dtype):
    pipeline = small_pipeline("text", aggregator="centrality, l2")
    pipeline.model.to(dtype)
    (graph,) = pipeline.explain(TEXTS[0]).words
    for head in (None, 0, 1):
        np.testing.assert_allclose(sum(node_weights(graph, head)), 1, rtol=1e-9)


def test_explain_uses_evaluation_mode_without_gradients():
    pipeline = small_pipeline("pair", embedding={"embedding_dim": 6, "dropout": 0.9})
    pipeline.model.train()
    first = explain(pipeline.model, pipeline.processor, TEXTS[0], OTHERS[0])
    assert first == explain(pipeline.model, pipeline.processor, TEXTS[0], OTHERS[0])
    assert all(parameter.grad is None for parameter in pipeline.model.parameters())
