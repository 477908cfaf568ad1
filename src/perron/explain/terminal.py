"""Words shaded by what they weigh, for a terminal."""

from rich.text import Text

from perron.explain.records import Graph

_FULL = (214, 96, 20)  # the colour of a word that weighs three times the mean or more


def shaded(graph: Graph) -> Text:
    """Return the words, the heavier the stronger their colour, each with its per cent.

    Without colour the numbers say the same.
    """
    text = Text()
    weights = graph.weights or [0.0] * len(graph.nodes)
    for word, weight in zip(graph.nodes, weights, strict=True):
        strength = min(1.0, weight * len(weights) / 3)
        red, green, blue = (round(255 - strength * (255 - part)) for part in _FULL)
        text.append(f"{word} ", f"black on rgb({red},{green},{blue})")
        if graph.weights is not None:
            text.append(f"{100 * weight:.0f} ", "dim")
    return text
