from perron.explain import Graph
from perron.explain.terminal import shaded


def graph(weights):
    words = ["a", "fine", "day"]
    return Graph(words, [(0, 1), (2, 6), (7, 10)], weights, None)


def test_each_word_is_followed_by_its_per_cent():
    assert shaded(graph([0.1, 0.7, 0.2])).plain == "a 10 fine 70 day 20 "


def test_the_heavier_word_is_the_stronger_coloured():
    spans = shaded(graph([0.1, 0.7, 0.2])).spans
    blues = [int(str(span.style).rstrip(")").split(",")[-1]) for span in spans[::2]]
    assert blues[1] < blues[2] < blues[0]


def test_words_without_weights_are_shown_as_they_are():
    assert shaded(graph(None)).plain == "a fine day "


def test_nothing_is_shown_of_an_empty_text():
    assert shaded(Graph([], [], [], None)).plain == ""
