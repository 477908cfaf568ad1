from io import StringIO

import pytest
from hypothesis import given, settings
from perron_tests.explanations import EVERY, document, pair, plans, text
from rich.console import Console

from perron.explain import Graph, Head
from perron.explain.flow import node_weights
from perron.explain.views import shaded_words, side_by_side, terminal_view


def graph(weights):
    words = ["a", "fine", "day"]
    heads = [] if weights is None else [Head(weights)]
    return Graph(words, [(0, 1), (2, 6), (7, 10)], weights, heads)


def test_each_word_is_followed_by_its_weight_in_percent():
    assert shaded_words(graph([0.1, 0.7, 0.2])).plain == "a 10 fine 70 day 20 "


def test_words_with_larger_weights_have_stronger_colors():
    spans = shaded_words(graph([0.1, 0.7, 0.2])).spans
    blues = [int(str(span.style).rstrip(")").split(",")[-1]) for span in spans[::2]]
    assert blues[1] < blues[2] < blues[0]


def test_words_without_weights_have_no_numbers():
    assert shaded_words(graph(None)).plain == "a fine day "


def test_an_empty_graph_is_an_empty_text():
    assert shaded_words(Graph([], [], [], [])).plain == ""


def render(view, width=100, **options):
    file = StringIO()
    Console(file=file, width=width, **options).print(view)
    return file.getvalue()


@pytest.mark.parametrize("name", EVERY)
def test_every_record_can_be_printed(name):
    output = render(terminal_view(EVERY[name]))
    assert all(len(line) <= 100 for line in output.splitlines())
    assert "demo (bilstm, centrality)" in output
    assert "75.0 %" in output


@settings(deadline=None, max_examples=60)
@given(plans())
def test_control_characters_are_not_printed(plan):
    output = render(terminal_view(plan()))
    assert not set(output) & {chr(code) for code in (*range(10), *range(11, 32), 127)}
    output.encode()


def test_text_is_not_markup():
    output = render(terminal_view(text(["[bold]", "[/]", ":heart:"], label="[red]")))
    for word in ("[bold]", "[/]", ":heart:"):
        assert word in output
    assert output.count("[red]") == 2  # in the title and among the classes


def test_the_view_is_readable_without_color():
    record = document(heads=2)
    plain = render(terminal_view(record), force_terminal=True, no_color=True)
    colored = render(
        terminal_view(record), force_terminal=True, color_system="truecolor"
    )
    assert "\x1b[38;2" not in plain
    assert "48;2;" in colored
    piped = render(terminal_view(record))
    assert "\x1b" not in piped
    for share in record.sentences.weights:
        assert f"{100 * share:.0f} %" in piped


def test_the_first_text_of_a_pair_is_above_the_second():
    output = render(terminal_view(pair()))
    assert (
        output.index("first text") < output.index("night") < output.index("second text")
    )
    assert output.index("second text") < output.index("home")


def test_the_strongest_flows_are_listed_with_their_direction():
    record = text(["so", "very", "well"])
    edges = [[0.8, 0.1, 0.2], [0.1, 0.2, 0.7], [0.1, 0.7, 0.1]]
    head = Head([1 / 3] * 3, edges)
    record.words[0] = Graph(["so", "very", "well"], [(0, 1)] * 3, [1 / 3] * 3, [head])
    output = render(terminal_view(record))
    assert output.index("well → very 23 %") < output.index("well → so 6.7 %")
    assert output.index("very → well 23 %") < output.index("well → so 6.7 %")
    assert "so → so" not in output
    assert "→" not in render(terminal_view(EVERY["no edges"]))
    assert "→" not in render(terminal_view(EVERY["one word"]))


def test_a_document_has_a_line_per_sentence_and_flows_between_them():
    output = render(terminal_view(document()))
    lines = output.splitlines()
    assert any(line.startswith("1 ") and "It" in line for line in lines)
    assert any(line.startswith("2 ") and "Good" in line for line in lines)
    assert "1 → 2" in output


def test_each_head_can_be_shown_separately():
    record = pair(heads=2)
    for head in (None, 0, 1):
        output = render(terminal_view(record, head))
        for graph in record.words:
            weights = zip(graph.nodes, node_weights(graph, head), strict=True)
            line = " ".join(f"{word} {100 * weight:.0f}" for word, weight in weights)
            assert line in output
    with pytest.raises(ValueError, match="head 2"):
        terminal_view(record, 2)


def test_empty_and_truncated_texts_are_labeled():
    assert "no words" in render(terminal_view(text([])))
    assert "no words" in render(terminal_view(document([])))
    assert "not read by the model" in render(terminal_view(text(truncated=True)))
    assert (
        render(terminal_view(document(truncated=True))).count("not read by the model")
        == 3
    )


def test_the_probabilities_of_many_classes_are_summed():
    record = text()
    record.probabilities.clear()
    record.probabilities.update(good=0.5, **{f"class {k}": 0.05 for k in range(10)})
    output = render(terminal_view(record))
    assert "3 others 15.0 %" in output
    assert "class 6" in output
    assert "class 7" not in output


def test_models_are_side_by_side_if_the_terminal_is_wide_enough():
    views = [terminal_view(text()), terminal_view(text(edges=False))]
    wide = render(side_by_side(views, 100))
    assert wide.splitlines()[0].count("demo") == 2
    narrow = render(side_by_side(views, 60), width=60)
    assert narrow.splitlines()[0].count("demo") == 1
    assert narrow.count("demo") == 2
    assert render(side_by_side(views[:1], 60)) == render(views[0])
