"""Other centralities of the same word graph, computed by networkx.

The model weighs a word by its eigenvector centrality in the graph that it learned. How
would the words rank by in-degree, closeness or betweenness? Needs the model that
examples/demo.py trains; takes seconds.

    python examples/word_graph.py [MODEL] [TEXT] [--out runs/word-graph.png]
"""

import argparse
from pathlib import Path

import networkx
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import perron
from perron.errors import PerronError

TEXT = "It's not a bad film, but it's too long and too slow."


def centralities(graph: networkx.DiGraph) -> dict[str, dict[str, float]]:
    """Return each centrality of each word, scaled so that it sums to one."""
    found = {
        "eigenvector": networkx.get_node_attributes(graph, "weight"),
        "in-degree": dict(graph.in_degree(weight="weight")),
        "closeness": networkx.closeness_centrality(graph, distance="distance"),
        "betweenness": networkx.betweenness_centrality(graph, weight="distance"),
    }
    totals = {name: sum(values.values()) or 1 for name, values in found.items()}
    return {
        name: {node: value / totals[name] for node, value in values.items()}
        for name, values in found.items()
    }


def draw(words: list[str], found: dict[str, dict[str, float]], path: Path) -> None:
    """Draw the centralities side by side, the words from top to bottom."""
    figure = Figure(figsize=(2.6 * len(found), 0.3 * len(words) + 1), dpi=120)
    places = np.arange(len(words))
    panels = np.atleast_1d(figure.subplots(1, len(found), sharey=True))
    for axis, (name, values) in zip(panels, found.items(), strict=True):
        axis.barh(places, [100 * value for value in values.values()], color="#e27026")
        axis.set(title=name, xlabel="per cent")
        axis.set_yticks(places, words, parse_math=False)
        axis.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:  # a format that matplotlib does not know
        raise SystemExit(f"error: {path}: {error}") from error


def main() -> None:
    """Explain a text, compute, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="runs/demo", help="its folder")
    parser.add_argument("text", nargs="?", default=TEXT, help="what it shall read")
    parser.add_argument("--out", type=Path, default=Path("runs/word-graph.png"))
    options = parser.parse_args()
    record = perron.load(options.model).explain(options.text)
    if not record.has_edges:
        raise SystemExit(f"error: {options.model} has no graph between the words")
    if not record.words or not record.words[0].nodes:
        raise SystemExit("error: there is no word in this text")

    graph = record.to_networkx()
    found = centralities(graph)
    words = list(networkx.get_node_attributes(graph, "text").values())
    table = Table("word", *(f"{name} %" for name in found))
    for node, word in zip(graph, words, strict=True):
        cells = [f"{100 * values[node]:.1f}" for values in found.values()]
        table.add_row(word, *cells)
    console = Console(highlight=False, markup=False)
    console.print(f"{record.label}: {record.text}", table)

    # The model's weights are what a walker along the edges finds, step by step.
    walk = networkx.pagerank(graph, alpha=1, weight="weight", tol=1e-12)
    apart = max(abs(walk[node] - found["eigenvector"][node]) for node in graph)
    console.print(f"PageRank without teleports differs by {apart:.0e} at most.")
    draw(words, found, options.out)
    console.print(f"Side by side in {options.out}")


if __name__ == "__main__":
    try:
        main()
    except PerronError as error:
        raise SystemExit(f"error: {error}; examples/demo.py trains a model") from None
