"""The word graph of a sentence, and of a pair of sentences: the paper's Figure 1."""

from collections.abc import Sequence
from io import BytesIO
from math import cos, pi, sin, sqrt
from typing import TYPE_CHECKING

from papers.gong2019.provenance import Trained, find_trained, missing_piece, origin
from papers.gong2019.work import Piece, Work
from perron.explain.colours import LIGHT, css, mixed
from perron.explain.flow import Flow, flows, per_cent, strongest, verdict
from perron.explain.records import Explanation, Graph
from perron.files import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SENTENCE = "the film is slow , but its last hour is a quiet , moving triumph ."
PREMISE = "a man in a red coat is walking his dog on the beach ."
HYPOTHESIS = "a person is outside with an animal ."
COLUMNS = ("text", "row", "word", "place", "to", "to_place", "share")

EDGES_PER_WORD = 1.5  # more of them hide each other
_LARGEST = 1600.0  # area of the heaviest word's node, in square points, if it has room
_WIDEST = 6.0  # of an edge, in points
_INCHES = 2.0  # to the radius of the circle of words
_SPACE = 1.5, 1.25  # from its middle to the rim, in radii
_ARROW = css(mixed(LIGHT.paper, LIGHT.arc, 0.65))


def figure1(work: Work) -> Piece:
    """Draw the word graph of one sentence, by the model of SST-2."""
    title = "Figure 1: the word graph of a sentence"
    trained = find_trained(work, "sst2")
    if isinstance(trained, str):
        return missing_piece("figure1", title, trained, COLUMNS)
    record = trained.pipeline.explain(SENTENCE)
    return _piece("figure1", title, record, ["sentence"], trained)


def graph(work: Work) -> Piece:
    """Draw the word graphs of a premise and a hypothesis, by the model of SNLI."""
    title = "The word graphs of a premise and a hypothesis"
    trained = find_trained(work, "snli")
    if isinstance(trained, str):
        return missing_piece("graph", title, trained, COLUMNS)
    record = trained.pipeline.explain(PREMISE, HYPOTHESIS)
    return _piece("graph", title, record, ["premise", "hypothesis"], trained)


def _piece(
    name: str, title: str, record: Explanation, parts: Sequence[str], trained: Trained
) -> Piece:
    shown = [strongest(flows(words), EDGES_PER_WORD) for words in record.words]
    figure = draw_graphs(record.words, shown, parts, verdict(record))
    rows: list[Sequence[str]] = [COLUMNS]
    sections = []
    for part, words, edges in zip(parts, record.words, shown, strict=True):
        rows += _rows(part, words, edges)
        sections.append(_section(part, words, edges))
    text = "\n\n".join(
        [
            f"![{title}]({name}.svg)",
            f"The model says: {verdict(record)}. The area of a node is the word's "
            "centrality, its share of all attention. An arrow from word j to word i is "
            "as wide as what j passes on to i: the edge A_ij times the centrality of "
            "j. A word weighs what flows into it. Only the strongest arrows are drawn, "
            f"on average {EDGES_PER_WORD:g} a word; what a word keeps is not drawn.",
            *sections,
            origin(trained),
        ]
    )
    return Piece(name, title, text + "\n", rows, picture_files(name, figure))


def _section(part: str, words: Graph, edges: Sequence[Flow]) -> str:
    moved = flows(words)
    between = moved.sum() - moved.trace()
    drawn = sum(edge.share for edge in edges)
    heading = f"### The {part}: {' '.join(words.nodes)}"
    weights = zip(words.nodes, _weights(words), strict=True)
    nodes = markdown_table(
        ["word", "centrality"], [[word, per_cent(share)] for word, share in weights]
    )
    told = (
        f"Between words flow {per_cent(float(between))} of all attention; the "
        f"{len(edges)} arrows carry {per_cent(drawn)}."
    )
    return f"{heading}\n\n{nodes}\n\n{told}"


def _rows(part: str, words: Graph, edges: Sequence[Flow]) -> list[list[str]]:
    nodes = words.nodes
    return [
        [part, "word", nodes[place], str(place), "", "", f"{share:.6f}"]
        for place, share in enumerate(_weights(words))
    ] + [
        [part, "edge", nodes[j], str(j), nodes[i], str(i), f"{share:.6f}"]
        for j, i, share in edges
    ]


def _weights(words: Graph) -> list[float]:
    assert words.weights is not None  # `find_trained` gives centrality alone
    return words.weights


def draw_graphs(
    graphs: Sequence[Graph],
    shown: Sequence[Sequence[Flow]],
    names: Sequence[str],
    title: str,
) -> "Figure":
    """Draw graphs side by side: words on a circle, clockwise, the first at the top.

    Args:
        graphs: with weights.
        shown: of each graph, the edges to draw.
        names: of the graphs.
        title: above all.
    """
    from matplotlib.figure import Figure  # seconds

    wide, high = _SPACE
    size = 2 * wide * _INCHES * len(graphs), 2 * high * _INCHES + 0.5
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, color=css(LIGHT.ink))
    panels = figure.subplots(1, len(graphs), squeeze=False)[0]
    for axes, words, edges, name in zip(panels, graphs, shown, names, strict=True):
        axes.set(xlim=(-wide, wide), ylim=(-high, high), aspect="equal")
        axes.set_axis_off()
        if len(graphs) > 1:
            axes.set_title(name, color=css(LIGHT.muted))
        _draw(axes, words, edges)
    return figure


def _draw(axes: "Axes", words: Graph, edges: Sequence[Flow]) -> None:
    from matplotlib.patches import FancyArrowPatch

    weights = _weights(words)
    angles = [pi / 2 - 2 * pi * place / len(weights) for place in range(len(weights))]
    places = [(cos(angle), sin(angle)) for angle in angles]
    # Of a long sentence with even weights all nodes are as large as there is room for;
    # a tenth of it goes to the margins.
    room = 0.9 * 72 * _INCHES * sin(pi / max(2, len(weights)))
    largest = min(_LARGEST, pi * room**2)
    areas = [largest * share / max(weights) for share in weights]
    radii = [sqrt(area / pi) for area in areas]
    most = max((edge.share for edge in edges), default=1.0)
    for j, i, share in reversed(edges):  # the strongest on top
        width = _WIDEST * share / most
        arrow = FancyArrowPatch(
            places[j],
            places[i],
            arrowstyle="-|>",
            connectionstyle="arc3,rad=0.15",  # there and back do not cover each other
            mutation_scale=6 + 2.5 * width,
            shrinkA=radii[j],
            shrinkB=radii[i] + 1,
            linewidth=width,
            color=_ARROW,
            zorder=1,
        )
        axes.add_patch(arrow)
    axes.scatter(
        [x for x, _ in places],
        [y for _, y in places],
        areas,
        color=css(LIGHT.full),
        edgecolors=css(LIGHT.ink),
        linewidths=0.8,
        zorder=2,
    )
    for word, share, (x, y), radius in zip(
        words.nodes, weights, places, radii, strict=True
    ):
        axes.annotate(
            f"{word} {per_cent(share)}",
            (x, y),
            xytext=(x * (radius + 5), y * (radius + 5)),
            textcoords="offset points",
            ha="center" if abs(x) < 0.1 else "left" if x > 0 else "right",
            va="center" if abs(y) < 0.95 else "bottom" if y > 0 else "top",
            color=css(LIGHT.ink),
            fontsize=11,
            zorder=3,
        )


def picture_files(name: str, figure: "Figure") -> dict[str, bytes]:
    """Return a figure as SVG and PNG, the same bytes each time, by file name."""
    from matplotlib import rc_context

    vector, pixels = BytesIO(), BytesIO()
    # Its ids come from the salt. Letters stay text: to be found, and read aloud.
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(vector, format="svg", metadata={"Date": None})
    figure.savefig(pixels, format="png", dpi=150)
    return {f"{name}.svg": vector.getvalue(), f"{name}.png": pixels.getvalue()}
