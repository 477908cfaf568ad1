import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from perron_tests.models import AGGREGATORS, LABELS
from perron_tests.pipelines import OTHERS, TEXTS, arguments, small_pipeline

from perron.explain import ModelInfo, explain
from perron.explain.flow import shares
from perron.pooling.centrality import PowerIteration

WITH_EDGES = [name for name in AGGREGATORS if name.startswith("centrality")]


def check_graph(graph, text):
    """Check what is true of every graph."""
    count = len(graph.nodes)
    assert [text[start:end] for start, end in graph.spans] == graph.nodes
    assert all(start < end for start, end in graph.spans)
    assert all(one[1] <= next_[0] for one, next_ in pairwise(graph.spans))
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
        for place, head in enumerate(graph.heads):
            check_edges(graph.edges(place), head)
        want = np.mean(
            [np.reshape(head.edges, (count, count)) for head in graph.heads], 0
        )
        np.testing.assert_allclose(graph.edges(), want, rtol=1e-12)


def check_edges(edges, head):
    weights = np.array(head.weights)
    assert (edges > 0).all()
    np.testing.assert_allclose(edges.sum(0), 1, rtol=1e-5)
    assert head.solver.method == "direct"
    assert head.solver.iterations is head.solver.converged is None
    if len(weights):
        residual = np.linalg.norm(edges @ weights - weights) / np.linalg.norm(weights)
        # The record's edges are rounded, those that were measured are not.
        assert head.solver.residual == pytest.approx(residual, abs=1e-6)
        assert head.solver.residual < 1e-6


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_every_record_is_sound_and_says_what_predict_says(kind, aggregator):
    pipeline = small_pipeline(kind, aggregator)
    given = arguments(pipeline)
    shares = pipeline.predict_proba(*given)
    labels = pipeline.predict(*given)
    for row, texts in enumerate(zip(*given, strict=True)):
        found = pipeline.explain(*texts)
        assert (found.text, found.pair) == (*texts, None)[:2]
        assert found.label == labels[row]
        assert list(found.probabilities) == list(LABELS)
        np.testing.assert_allclose(
            list(found.probabilities.values()), shares[row], atol=1e-6
        )
        if kind == "document":
            assert len(found.words) == len(found.sentences.nodes)
            check_graph(found.sentences, texts[0])
            for graph, place in zip(found.words, found.sentences.spans, strict=True):
                check_graph(graph, texts[0])
                assert graph.spans[0][0] == place[0]
                assert graph.spans[-1][1] == place[1]
        else:
            assert found.sentences is None
            for graph, text in zip(found.words, texts, strict=True):
                check_graph(graph, text)
        for graph in found.graphs:
            assert graph.has_edges == (aggregator in WITH_EDGES)
            assert (graph.weights is not None) == (aggregator != "max")
        json.dumps(dataclasses.asdict(found))  # plain values only


def test_a_record_names_its_model():
    pipeline = small_pipeline("pair", "self-attention", encoder="cnn")
    pipeline.name = "mine"
    found = pipeline.explain("a film", "the film")
    assert found.model == ModelInfo("mine", "pair", "cnn", "self-attention")


def test_words_are_those_of_the_text_as_typed():
    text = "It wasn't  a GOOD film ."
    (graph,) = small_pipeline("text").explain(text).words
    assert graph.nodes == ["It", "was", "n't", "a", "GOOD", "film", "."]


@pytest.mark.parametrize(("count", "cut"), [(10, False), (11, True), (12, True)])
def test_a_long_text_shows_the_words_that_the_model_saw(count, cut):
    (graph,) = small_pipeline("text").explain(" ".join(["film"] * count)).words
    assert len(graph.nodes) == len(graph.weights) == len(graph.edges()) == 10
    assert graph.truncated == cut


def test_sentences_of_a_document_are_found_and_cut():
    text = "Good film. It was good!\nThe film was bad? Not it. The end."
    found = small_pipeline("document").explain(text)
    assert found.sentences.nodes == [
        "Good film.",
        "It was good!",
        "The film was bad?",
        "Not it.",
    ]
    assert [len(graph.nodes) for graph in found.words] == [3, 4, 5, 3]
    assert found.sentences.truncated
    assert not any(graph.truncated for graph in found.words)
    long = small_pipeline("document").explain("It was good. " + "film " * 12)
    assert [graph.truncated for graph in long.words] == [False, True]
    assert not long.sentences.truncated


def check_numbers(graph, pooled, row=0):
    """Check a graph against what the aggregator itself returned for it."""
    count = len(graph.nodes)
    assert len(graph.heads) == pooled.head_weights.shape[1]
    for place, head in enumerate(graph.heads):
        weights = pooled.head_weights[row, place, :count]
        edges = pooled.head_edges[row, place, :count, :count]
        np.testing.assert_allclose(head.weights, weights / weights.sum(), rtol=1e-5)
        np.testing.assert_allclose(head.edges, edges, rtol=1e-5)


@pytest.mark.parametrize("aggregator", ["centrality", "centrality, l2"])
def test_numbers_are_those_of_the_model(aggregator):
    pipeline = small_pipeline("pair", aggregator)
    found = pipeline.explain("the film was good", "bad film")
    ids, other = torch.tensor([5, 2, 7, 3]), torch.tensor([4, 2])
    for graph, row in zip(found.words, (ids, other), strict=True):
        with torch.inference_mode():
            pooled = pipeline.model.pool(row.unsqueeze(0), need_edges=True)
        check_numbers(graph, pooled)


@pytest.mark.parametrize("aggregator", ["centrality", "centrality, l2"])
def test_numbers_of_a_document_are_those_of_its_sentences(aggregator):
    pipeline = small_pipeline("document", aggregator)
    model = pipeline.model
    found = pipeline.explain("the film was good. bad film. it was not.")
    rows = [torch.tensor(ids) for ids in ([5, 2, 7, 3, 8], [4, 2, 8], [6, 7, 9, 8])]
    vectors = []
    with torch.inference_mode():
        for graph, row in zip(found.words, rows, strict=True):
            states = model.encoder(model.embedding(row.unsqueeze(0)))
            pooled = model.aggregator(states, need_edges=True)
            vectors.append(pooled.vector)
            check_numbers(graph, pooled)
        states = model.sentence_encoder(torch.stack(vectors, 1))
        pooled = model.sentence_aggregator(states, need_edges=True)
    check_numbers(found.sentences, pooled)


def test_weights_without_a_graph_are_those_of_each_head():
    pipeline = small_pipeline("text", "self-attention")
    (graph,) = pipeline.explain("the film was good").words
    with torch.inference_mode():
        pooled = pipeline.model(torch.tensor([[5, 2, 7, 3]])).pooled[0]
    assert len(graph.heads) == 2
    for head, weights in zip(graph.heads, pooled.head_weights[0], strict=True):
        np.testing.assert_allclose(head.weights, weights, rtol=1e-5)
        assert head.edges is head.solver is None


@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_the_power_method_tells_how_it_ended(kind):
    pipeline = small_pipeline(kind, aggregator="centrality", encoder="bilstm")
    levels = [
        part
        for name, part in pipeline.model.named_modules()
        if name.endswith("aggregator")
    ]
    texts = ("the film was good. it was not bad.", "a film")[: 1 + (kind == "pair")]
    for max_iter, converged in ((200, True), (1, False)):
        for level in levels:
            level.solver = PowerIteration(max_iter=max_iter)
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
def test_a_text_without_words_has_graphs_without_nodes(kind):
    pipeline = small_pipeline(kind)
    found = pipeline.explain(*arguments(pipeline, " ", ""))
    graphs = found.words if kind != "document" else [found.sentences]
    assert len(graphs) == (2 if kind == "pair" else 1)
    for graph in graphs:
        assert (graph.nodes, graph.spans, graph.weights) == ([], [], [])
        assert [(head.weights, head.edges) for head in graph.heads] == [([], [])]
        assert graph.edges().shape == (0, 0)
    assert kind != "document" or found.words == []


def test_each_level_shows_what_its_aggregator_has():
    pipeline = small_pipeline("document", "max", sentence_aggregator="centrality")
    found = pipeline.explain("good film. bad film.")
    assert found.sentences.weights is not None
    assert found.sentences.has_edges
    assert found.has_edges
    assert [graph.weights for graph in found.words] == [None, None]
    assert [shares(graph) for graph in found.words] == [None, None]


def test_marks_of_the_treebank_stand_where_they_stand():
    text = "a -LRB- good -RRB- film ``it was''"
    (graph,) = small_pipeline("text").explain(text).words
    check_graph(graph, text)
    assert "-LRB-" in graph.nodes
    assert "``" in graph.nodes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_are_shares_in_every_precision(dtype):
    pipeline = small_pipeline("text", aggregator="centrality, l2")
    pipeline.model.to(dtype)
    (graph,) = pipeline.explain(TEXTS[0]).words
    for head in (None, 0, 1):
        np.testing.assert_allclose(sum(shares(graph, head)), 1, rtol=1e-9)


def test_explaining_does_not_train():
    pipeline = small_pipeline("pair", embedding={"embedding_dim": 6, "dropout": 0.9})
    pipeline.model.train()
    first = explain(pipeline.model, pipeline.processor, TEXTS[0], OTHERS[0])
    assert first == explain(pipeline.model, pipeline.processor, TEXTS[0], OTHERS[0])
    assert all(parameter.grad is None for parameter in pipeline.model.parameters())
