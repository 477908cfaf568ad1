import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from models.small import AGGREGATORS, LABELS
from pipeline.trained import OTHERS, TEXTS, arguments, small_pipeline

from perron.explain import explain

WITH_EDGES = [name for name in AGGREGATORS if name.startswith("centrality")]


def check_graph(graph, text):
    """Check what is true of every graph."""
    count = len(graph.nodes)
    assert [text[start:end] for start, end in graph.places] == graph.nodes
    assert all(start < end for start, end in graph.places)
    assert all(one[1] <= next_[0] for one, next_ in pairwise(graph.places))
    if graph.weights is not None:
        assert len(graph.weights) == count
        assert all(weight > 0 for weight in graph.weights)
        np.testing.assert_allclose(sum(graph.weights), min(count, 1), rtol=1e-9)
    if graph.edges is not None:
        edges = np.array(graph.edges).reshape(count, count)
        assert (edges > 0).all()
        np.testing.assert_allclose(edges.sum(0), 1, rtol=1e-5)


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
            for graph, place in zip(found.words, found.sentences.places, strict=True):
                check_graph(graph, texts[0])
                assert graph.places[0][0] == place[0]
                assert graph.places[-1][1] == place[1]
        else:
            assert found.sentences is None
            for graph, text in zip(found.words, texts, strict=True):
                check_graph(graph, text)
        graphs = found.words + ([found.sentences] if found.sentences else [])
        for graph in graphs:
            assert (graph.edges is not None) == (aggregator in WITH_EDGES)
            assert (graph.weights is not None) == (aggregator != "max")
        json.dumps(dataclasses.asdict(found))  # plain values only


def test_words_are_those_of_the_text_as_typed():
    text = "It wasn't  a GOOD film ."
    (graph,) = small_pipeline("text").explain(text).words
    assert graph.nodes == ["It", "was", "n't", "a", "GOOD", "film", "."]


def test_a_long_text_shows_the_words_that_the_model_saw():
    (graph,) = small_pipeline("text").explain(" ".join(["film"] * 12)).words
    assert len(graph.nodes) == len(graph.weights) == len(graph.edges) == 10


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


def test_numbers_are_those_of_the_model():
    pipeline = small_pipeline("pair", "centrality")
    found = pipeline.explain("the film was good", "bad film")
    ids, other = torch.tensor([5, 2, 7, 3]), torch.tensor([4, 2])
    for graph, row in zip(found.words, (ids, other), strict=True):
        pooled = pipeline.model.pool(row.unsqueeze(0), need_edges=True)
        np.testing.assert_allclose(graph.weights, pooled.weights[0].tolist(), rtol=1e-5)
        np.testing.assert_allclose(graph.edges, pooled.edges[0].tolist(), rtol=1e-5)


def test_numbers_of_a_document_are_those_of_its_sentences():
    pipeline = small_pipeline("document", "centrality")
    model = pipeline.model
    found = pipeline.explain("the film was good. bad film. it was not.")
    rows = [torch.tensor(ids) for ids in ([5, 2, 7, 3, 8], [4, 2, 8], [6, 7, 9, 8])]
    vectors = []
    for graph, row in zip(found.words, rows, strict=True):
        states = model.encoder(model.embedding(row.unsqueeze(0)))
        pooled = model.aggregator(states, need_edges=True)
        vectors.append(pooled.vector)
        np.testing.assert_allclose(graph.weights, pooled.weights[0].tolist(), rtol=1e-5)
        np.testing.assert_allclose(graph.edges, pooled.edges[0].tolist(), rtol=1e-5)
    states = model.sentence_encoder(torch.stack(vectors, 1))
    pooled = model.sentence_aggregator(states, need_edges=True)
    np.testing.assert_allclose(
        found.sentences.weights, pooled.weights[0].tolist(), rtol=1e-5
    )
    np.testing.assert_allclose(
        found.sentences.edges, pooled.edges[0].tolist(), rtol=1e-5
    )


@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_a_text_without_words_has_graphs_without_nodes(kind):
    pipeline = small_pipeline(kind)
    found = pipeline.explain(*arguments(pipeline, " ", ""))
    graphs = found.words if kind != "document" else [found.sentences]
    assert len(graphs) == (2 if kind == "pair" else 1)
    for graph in graphs:
        assert (graph.nodes, graph.places, graph.weights, graph.edges) == (
            ([], [], [], [])
        )
    assert kind != "document" or found.words == []


def test_each_level_shows_what_its_aggregator_has():
    pipeline = small_pipeline("document", "max", sentence_aggregator="centrality")
    found = pipeline.explain("good film. bad film.")
    assert found.sentences.weights is not None
    assert found.sentences.edges is not None
    assert [graph.weights for graph in found.words] == [None, None]


def test_marks_of_the_treebank_stand_where_they_stand():
    text = "a -LRB- good -RRB- film ``it was''"
    (graph,) = small_pipeline("text").explain(text).words
    check_graph(graph, text)
    assert "-LRB-" in graph.nodes
    assert "``" in graph.nodes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_are_shares_in_every_precision(dtype):
    pipeline = small_pipeline("text")
    pipeline.model.to(dtype)
    (graph,) = pipeline.explain(TEXTS[0]).words
    np.testing.assert_allclose(sum(graph.weights), 1, rtol=1e-9)


def test_explaining_does_not_train():
    pipeline = small_pipeline("pair", embedding={"dim": 6, "dropout": 0.9})
    pipeline.model.train()
    first = explain(pipeline.model, pipeline.word_ids, TEXTS[0], OTHERS[0])
    assert first == explain(pipeline.model, pipeline.word_ids, TEXTS[0], OTHERS[0])
    assert all(parameter.grad is None for parameter in pipeline.model.parameters())
