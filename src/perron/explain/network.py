"""The word graph for networkx, and for the programs that read GraphML."""

import networkx

from perron.explain.flow import check_head, flows, head_of, printable, shares
from perron.explain.records import Explanation, Graph


def to_networkx(record: Explanation, head: int | None = None) -> networkx.DiGraph:
    """Return all words, and sentences, as one directed graph.

    A node is named by its part and its place in it: ``"0.3"`` is the fourth word of the
    text, or of the first text of a pair, or of the first sentence of a document;
    ``"s2"`` is a document's third sentence. It has ``text``, ``start`` and ``end`` in
    the text, ``part``, ``level`` ("word" or "sentence") and ``weight``, unless the
    aggregator has none.

    An edge points the way that importance goes, from j to i. It has ``weight`` A_ij,
    ``flow`` A_ij α_j and, for shortest paths, ``distance`` 1 / A_ij. For one head,
    or a model with one, the nodes' weights are the stationary distribution of a walk
    along the edges. An edge from a word to itself is one too.

    Args:
        record: what to turn into a graph.
        head: which weights and edges; the mean of all if not given.
    """
    check_head(record, head)
    network = networkx.DiGraph(model=record.model.name, label=record.label)
    for part, graph in enumerate(record.words):
        names = [f"{part}.{place}" for place in range(len(graph.nodes))]
        _add(network, graph, head, names, [part] * len(names), "word")
    if record.sentences is not None:
        places = list(range(len(record.sentences.nodes)))
        names = [f"s{place}" for place in places]
        _add(network, record.sentences, head, names, places, "sentence")
    return network


def to_graphml(record: Explanation, head: int | None = None) -> str:
    """Return the same graph as GraphML, for Gephi, yEd or Cytoscape.

    XML cannot hold every character: � stands for those.
    """
    network = to_networkx(record, head)
    for _, attributes in network.nodes(data=True):
        attributes["text"] = printable(attributes["text"])
    for name, value in network.graph.items():
        network.graph[name] = printable(value)
    lines = networkx.generate_graphml(network)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + "\n".join(lines) + "\n"


def _add(
    network: networkx.DiGraph,
    graph: Graph,
    head: int | None,
    names: list[str],
    parts: list[int],
    level: str,
) -> None:
    weights = shares(graph, head)
    for place, name in enumerate(names):
        start, end = graph.places[place]
        network.add_node(
            name,
            text=graph.nodes[place],
            start=start,
            end=end,
            part=parts[place],
            level=level,
        )
        if weights is not None:
            network.nodes[name]["weight"] = weights[place]
    if not graph.has_edges:
        return
    edges = graph.edges(head_of(graph, head)).tolist()
    moved = flows(graph, head).tolist()
    for target, row in zip(names, range(len(names)), strict=True):
        for source, weight, flow in zip(names, edges[row], moved[row], strict=True):
            if weight > 0:
                network.add_edge(
                    source, target, weight=weight, flow=flow, distance=1 / weight
                )
