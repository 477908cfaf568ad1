"""Compare other centralities of the same word graph, computed by networkx.

The model weights a word by its eigenvector centrality in the graph it learned. This
example ranks the words by in-degree, closeness and betweenness as well. Needs the model
trained by examples/demo.py. Takes seconds.

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

Scores = dict[str, dict[str, float]]  # by centrality, then by node


def centralities(graph: networkx.DiGraph) -> Scores:
    """Return the centralities of all words, each normalized to sum to one."""
    scores = {
        "eigenvector": networkx.get_node_attributes(graph, "weight"),
        "in-degree": dict(graph.in_degree(weight="weight")),
        "closeness": networkx.closeness_centrality(graph, distance="distance"),
        "betweenness": networkx.betweenness_centrality(graph, weight="distance"),
    }
    totals = {name: sum(values.values()) or 1 for name, values in scores.items()}
    return {
        name: {node: value / totals[name] for node, value in values.items()}
        for name, values in scores.items()
    }


def plot(words: list[str], scores: Scores, path: Path) -> None:
    """Plot the centralities side by side, with the words from top to bottom."""
    figure = Figure(figsize=(2.6 * len(scores), 0.3 * len(words) + 1), dpi=120)
    positions = np.arange(len(words))
    panels = np.atleast_1d(figure.subplots(1, len(scores), sharey=True))
    for panel, (name, values) in zip(panels, scores.items(), strict=True):
        percentages = [100 * value for value in values.values()]
        panel.barh(positions, percentages, color="#e27026")
        panel.set(title=name, xlabel="%")
        panel.set_yticks(positions, words, parse_math=False)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:  # such as an unknown image format
        raise SystemExit(f"error: {path}: {error}") from error


def main() -> None:
    """Explain a text, compute its centralities, print and plot them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="runs/demo", help="model folder")
    parser.add_argument("text", nargs="?", default=TEXT, help="text to explain")
    parser.add_argument("--out", type=Path, default=Path("runs/word-graph.png"))
    options = parser.parse_args()
    record = perron.load(options.model).explain(options.text)
    if not record.has_edges:
        raise SystemExit(f"error: {options.model} does not build a word graph.")
    if not record.words or not record.words[0].nodes:
        raise SystemExit("error: the text contains no words.")

    graph = record.to_networkx()
    scores = centralities(graph)
    words = list(networkx.get_node_attributes(graph, "text").values())
    table = Table("word", *(f"{name} %" for name in scores))
    for node, word in zip(graph, words, strict=True):
        cells = [f"{100 * values[node]:.1f}" for values in scores.values()]
        table.add_row(word, *cells)
    console = Console(highlight=False, markup=False)
    console.print(f"{record.label}: {record.text}", table)

    # The model's weights are the stationary distribution of a random walk on the graph.
    pagerank = networkx.pagerank(graph, alpha=1, weight="weight", tol=1e-12)
    difference = max(
        abs(pagerank[node] - weight) for node, weight in scores["eigenvector"].items()
    )
    console.print(
        f"PageRank without teleportation differs by at most {difference:.0e}."
    )
    plot(words, scores, options.out)
    console.print(f"Saved the plots to {options.out}.")


if __name__ == "__main__":
    try:
        main()
    except PerronError as error:
        raise SystemExit(
            f"error: {error}\nTo train a model, run examples/demo.py."
        ) from None
