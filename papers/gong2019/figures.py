"""Figure 1 of the paper: word graphs of a sentence and of a sentence pair."""

from collections.abc import Sequence
from io import BytesIO
from math import cos, pi, sin, sqrt
from typing import TYPE_CHECKING

from papers.gong2019.provenance import (
    TrainedModel,
    find_or_train,
    missing_artifact,
    origin,
)
from papers.gong2019.workspace import Artifact, Workspace
from perron.explain.flow import (
    LIGHT,
    Flow,
    flow_matrix,
    mix,
    percent,
    prediction_text,
    strongest_flows,
    to_hex,
)
from perron.explain.records import Explanation, Graph
from perron.files import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SENTENCE = "the film is slow , but its last hour is a quiet , moving triumph ."
PREMISE = "a man in a red coat is walking his dog on the beach ."
HYPOTHESIS = "a person is outside with an animal ."
COLUMNS = ("text", "row", "word", "position", "to", "to_position", "share")

EDGES_PER_WORD = 1.5  # with more, arrows cover each other
_MAX_NODE_AREA = 1600.0  # of the heaviest word, in square points, if it fits
_MAX_EDGE_WIDTH = 6.0  # in points
_RADIUS = 2.0  # of the circle of words, in inches
_EXTENT = 1.5, 1.25  # from the center to the edge of the panel, in radii
_ARROW = to_hex(mix(LIGHT.paper, LIGHT.arc, 0.65))


def figure1(workspace: Workspace) -> Artifact:
    """Draw the word graph of a sentence, with the SST-2 model."""
    title = "Figure 1: word graph of a sentence"
    trained = find_or_train(workspace, "sst2")
    if isinstance(trained, str):
        return missing_artifact("figure1", title, trained, COLUMNS)
    record = trained.pipeline.explain(SENTENCE)
    return _artifact("figure1", title, record, ["sentence"], trained)


def graph(workspace: Workspace) -> Artifact:
    """Draw the word graphs of a premise and a hypothesis, with the SNLI model."""
    title = "Word graphs of a premise and a hypothesis"
    trained = find_or_train(workspace, "snli")
    if isinstance(trained, str):
        return missing_artifact("graph", title, trained, COLUMNS)
    record = trained.pipeline.explain(PREMISE, HYPOTHESIS)
    return _artifact("graph", title, record, ["premise", "hypothesis"], trained)


def _artifact(
    name: str,
    title: str,
    record: Explanation,
    parts: Sequence[str],
    trained: TrainedModel,
) -> Artifact:
    shown = [
        strongest_flows(flow_matrix(words), EDGES_PER_WORD) for words in record.words
    ]
    figure = draw_graphs(record.words, shown, parts, prediction_text(record))
    rows: list[Sequence[str]] = [COLUMNS]
    sections = []
    for part, words, edges in zip(parts, record.words, shown, strict=True):
        rows += _rows(part, words, edges)
        sections.append(_section(part, words, edges))
    text = "\n\n".join(
        [
            f"![{title}]({name}.svg)",
            f"Prediction: {prediction_text(record)}. The area of a node is the "
            "centrality of the word, its share of the total attention. The width of an "
            "arrow from word j to word i is the flow between them, the edge A_ij times "
            "the centrality of j. The weight of a word is the sum of the flows into "
            f"it. Only the strongest arrows are drawn, {EDGES_PER_WORD:g} per word on "
            "average. Flows from a word to itself are not drawn.",
            *sections,
            origin(trained),
        ]
    )
    return Artifact(name, title, text + "\n", rows, image_files(name, figure))


def _section(part: str, words: Graph, edges: Sequence[Flow]) -> str:
    flow = flow_matrix(words)
    between = flow.sum() - flow.trace()
    drawn = sum(edge.share for edge in edges)
    heading = f"### {part.capitalize()}: {' '.join(words.nodes)}"
    weights = zip(words.nodes, _weights(words), strict=True)
    nodes = markdown_table(
        ["word", "centrality"], [[word, percent(share)] for word, share in weights]
    )
    summary = (
        f"{percent(float(between))} of the total attention flows between different "
        f"words; the {len(edges)} arrows carry {percent(drawn)}."
    )
    return f"{heading}\n\n{nodes}\n\n{summary}"


def _rows(part: str, words: Graph, edges: Sequence[Flow]) -> list[list[str]]:
    nodes = words.nodes
    return [
        [part, "word", nodes[k], str(k), "", "", f"{share:.6f}"]
        for k, share in enumerate(_weights(words))
    ] + [
        [part, "edge", nodes[j], str(j), nodes[i], str(i), f"{share:.6f}"]
        for j, i, share in edges
    ]


def _weights(words: Graph) -> list[float]:
    assert words.weights is not None  # `find_or_train` returns centrality models only
    return words.weights


def draw_graphs(
    graphs: Sequence[Graph],
    shown: Sequence[Sequence[Flow]],
    names: Sequence[str],
    title: str,
) -> "Figure":
    """Draw graphs side by side, with the words arranged clockwise on a circle.

    Args:
        graphs: Graphs with weights.
        shown: Edges to draw, for each graph.
        names: Name of each graph.
        title: Title of the figure.
    """
    from matplotlib.figure import Figure  # takes seconds

    width, height = _EXTENT
    size = 2 * width * _RADIUS * len(graphs), 2 * height * _RADIUS + 0.5
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, color=to_hex(LIGHT.ink))
    panels = figure.subplots(1, len(graphs), squeeze=False)[0]
    for axes, words, edges, name in zip(panels, graphs, shown, names, strict=True):
        axes.set(xlim=(-width, width), ylim=(-height, height), aspect="equal")
        axes.set_axis_off()
        if len(graphs) > 1:
            axes.set_title(name, color=to_hex(LIGHT.muted))
        _draw(axes, words, edges)
    return figure


def _draw(axes: "Axes", words: Graph, edges: Sequence[Flow]) -> None:
    from matplotlib.patches import FancyArrowPatch

    weights = _weights(words)
    angles = [pi / 2 - 2 * pi * k / len(weights) for k in range(len(weights))]
    positions = [(cos(angle), sin(angle)) for angle in angles]
    # Neighboring nodes must not overlap, even if all weights are equal; a tenth of the
    # space between them is left free.
    max_radius = 0.9 * 72 * _RADIUS * sin(pi / max(2, len(weights)))
    largest = min(_MAX_NODE_AREA, pi * max_radius**2)
    areas = [largest * share / max(weights) for share in weights]
    radii = [sqrt(area / pi) for area in areas]
    max_share = max((edge.share for edge in edges), default=1.0)
    for j, i, share in reversed(edges):  # the strongest on top
        width = _MAX_EDGE_WIDTH * share / max_share
        arrow = FancyArrowPatch(
            positions[j],
            positions[i],
            arrowstyle="-|>",
            connectionstyle="arc3,rad=0.15",  # separates opposite arrows
            mutation_scale=6 + 2.5 * width,
            shrinkA=radii[j],
            shrinkB=radii[i] + 1,
            linewidth=width,
            color=_ARROW,
            zorder=1,
        )
        axes.add_patch(arrow)
    axes.scatter(
        [x for x, _ in positions],
        [y for _, y in positions],
        areas,
        color=to_hex(LIGHT.full),
        edgecolors=to_hex(LIGHT.ink),
        linewidths=0.8,
        zorder=2,
    )
    for word, share, (x, y), radius in zip(
        words.nodes, weights, positions, radii, strict=True
    ):
        axes.annotate(
            f"{word} {percent(share)}",
            (x, y),
            xytext=(x * (radius + 5), y * (radius + 5)),
            textcoords="offset points",
            ha="center" if abs(x) < 0.1 else "left" if x > 0 else "right",
            va="center" if abs(y) < 0.95 else "bottom" if y > 0 else "top",
            color=to_hex(LIGHT.ink),
            fontsize=11,
            zorder=3,
        )


def image_files(name: str, figure: "Figure") -> dict[str, bytes]:
    """Return reproducible SVG and PNG files of a figure, by file name."""
    from matplotlib import rc_context

    vector, pixels = BytesIO(), BytesIO()
    # The salt makes ids reproducible. Text stays text for search and screen readers.
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(vector, format="svg", metadata={"Date": None})
    figure.savefig(pixels, format="png", dpi=150)
    return {f"{name}.svg": vector.getvalue(), f"{name}.png": pixels.getvalue()}
