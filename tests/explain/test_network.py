from io import BytesIO
from xml.etree import ElementTree

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from perron_tests.errors import mentions
from perron_tests.explanations import EVERY, document, pair, plans, text
from perron_tests.pipelines import small_pipeline

from perron.explain import Graph, Head
from perron.explain.views import to_graphml, to_networkx


def part(network, prefix):
    return network.subgraph([node for node in network if node.startswith(prefix)])


@pytest.mark.parametrize("head", [0, 1])
@pytest.mark.parametrize("make_record", [text, pair, document])
def test_weights_are_the_stationary_distribution_of_a_random_walk(make_record, head):
    network = to_networkx(make_record(heads=2), head)
    prefixes = {node.split(".")[0][:1] for node in network}
    for prefix in prefixes:
        graph = part(network, prefix)
        walk = networkx.pagerank(graph, alpha=1, weight="weight", tol=1e-13)
        weights = networkx.get_node_attributes(graph, "weight")
        assert walk == pytest.approx(weights, abs=1e-9)
        central = networkx.eigenvector_centrality(
            graph, max_iter=5000, tol=1e-12, weight="weight"
        )
        total = sum(central.values())
        assert {node: value / total for node, value in central.items()} == (
            pytest.approx(weights, abs=1e-9)
        )


def test_the_graph_of_a_model_has_the_same_weights_in_networkx():
    record = small_pipeline("text").explain("the film was not good, it was bad")
    network = record.to_networkx()
    walk = networkx.pagerank(network, alpha=1, weight="weight", tol=1e-13)
    weights = networkx.get_node_attributes(network, "weight")
    assert walk == pytest.approx(weights, abs=1e-6)


def test_edges_point_in_the_direction_of_the_flow():
    # Node 0 passes everything to node 1, which passes a quarter back.
    head = Head([0.2, 0.8], [[0.0, 0.25], [1.0, 0.75]])
    record = text(["a", "b"])
    record.words[0] = Graph(["a", "b"], [(0, 1), (2, 3)], [0.2, 0.8], [head])
    edges = dict(to_networkx(record).edges)
    assert set(edges) == {("0.0", "0.1"), ("0.1", "0.0"), ("0.1", "0.1")}  # no zero
    assert edges["0.1", "0.0"] == pytest.approx(
        {"weight": 0.25, "flow": 0.2, "distance": 4}
    )
    assert edges["0.0", "0.1"] == pytest.approx(
        {"weight": 1, "flow": 0.2, "distance": 1}
    )


def test_flows_into_and_out_of_a_node_sum_to_its_weight():
    for head in (None, 0, 2):
        network = to_networkx(document(heads=3), head)
        for node, weight in network.nodes(data="weight"):
            assert network.in_degree(node, "flow") == pytest.approx(weight)
            assert network.out_degree(node, "flow") == pytest.approx(weight)


def test_nodes_have_their_position_in_the_text():
    record = document((("It", "was"), ("Good",), ("a", "b", "c")), heads=2)
    network = to_networkx(record)
    assert list(network) == ["0.0", "0.1", "1.0", "2.0", "2.1", "2.2", "s0", "s1", "s2"]
    node = network.nodes["2.1"]
    assert (node["text"], node["part"], node["level"]) == ("b", 2, "word")
    assert (node["start"], node["end"]) == record.words[2].spans[1]
    assert node["weight"] == record.words[2].weights[1]
    assert network.nodes["s1"]["level"] == "sentence"
    assert network.nodes["s1"]["part"] == 1
    connected = {(source[0], target[0]) for source, target in network.edges}
    assert connected == {("0", "0"), ("1", "1"), ("2", "2"), ("s", "s")}


def test_the_texts_of_a_pair_are_not_connected():
    network = to_networkx(pair())
    assert {network.nodes[node]["part"] for node in network} == {0, 1}
    parts = list(networkx.weakly_connected_components(network))
    assert sorted(map(len, parts)) == [3, 8]


def test_words_without_edges_are_isolated_nodes():
    unweighted = to_networkx(EVERY["no weights"])
    assert (len(unweighted), unweighted.size()) == (11, 0)
    assert "weight" not in unweighted.nodes["0.0"]
    weighted = to_networkx(EVERY["no edges"])
    assert weighted.size() == 0
    assert sum(dict(weighted.nodes(data="weight")).values()) == pytest.approx(1)
    assert len(to_networkx(EVERY["empty"])) == 0


def test_a_missing_head_is_an_error():
    for convert in (to_networkx, to_graphml):
        with pytest.raises(ValueError, match=mentions("head 2", "demo", 0, 1)):
            convert(pair(heads=2), 2)


@settings(deadline=None, max_examples=60)
@given(plans())
def test_networkx_can_read_the_graphml_of_any_text(plan):
    record = plan()
    graphml = to_graphml(record)
    ElementTree.fromstring(graphml.encode())
    parsed = networkx.read_graphml(BytesIO(graphml.encode()))
    network = to_networkx(record)
    assert list(parsed) == list(network)
    assert set(parsed.edges) == set(network.edges)
    for source, target, weight in network.edges(data="weight"):
        assert parsed.edges[source, target]["weight"] == weight


def test_graphml_has_plain_numbers_of_the_chosen_head():
    record = pair(["a", "<b>", "c"], ["d"], heads=2)
    mean, first = (
        networkx.read_graphml(BytesIO(to_graphml(record, head).encode()))
        for head in (None, 0)
    )
    assert mean.nodes["0.1"]["text"] == "<b>"
    assert mean.nodes["0.1"]["weight"] == record.words[0].weights[1]
    assert first.nodes["0.1"]["weight"] == record.words[0].heads[0].weights[1]
    assert "np." not in to_graphml(record)
    for values in (*to_networkx(record).edges.values(), *mean.nodes.values()):
        assert not any(isinstance(value, np.generic) for value in values.values())
