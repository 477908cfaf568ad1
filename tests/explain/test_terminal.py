from io import StringIO

import pytest
from hypothesis import given, settings
from perron_tests.explanations import EVERY, document, pair, plans, text
from rich.console import Console

from perron.explain import Graph, Head
from perron.explain.flow import shares
from perron.explain.views import shaded, side_by_side, view


def graph(weights):
    words = ["a", "fine", "day"]
    heads = [] if weights is None else [Head(weights)]
    return Graph(words, [(0, 1), (2, 6), (7, 10)], weights, heads)


def test_each_word_is_followed_by_its_per_cent():
    assert shaded(graph([0.1, 0.7, 0.2])).plain == "a 10 fine 70 day 20 "


def test_the_heavier_word_is_the_stronger_colored():
    spans = shaded(graph([0.1, 0.7, 0.2])).spans
    blues = [int(str(span.style).rstrip(")").split(",")[-1]) for span in spans[::2]]
    assert blues[1] < blues[2] < blues[0]


def test_words_without_weights_are_shown_as_they_are():
    assert shaded(graph(None)).plain == "a fine day "


def test_nothing_is_shown_of_an_empty_text():
    assert shaded(Graph([], [], [], [])).plain == ""


def printed(shown, width=100, **options):
    file = StringIO()
    Console(file=file, width=width, **options).print(shown)
    return file.getvalue()


@pytest.mark.parametrize("name", EVERY)
def test_every_record_can_be_shown(name):
    told = printed(view(EVERY[name]))
    assert all(len(line) <= 100 for line in told.splitlines())
    assert "demo (bilstm, centrality)" in told
    assert "75.0 %" in told


@settings(deadline=None, max_examples=60)
@given(plans())
def test_no_text_speaks_to_the_terminal(plan):
    told = printed(view(plan()))
    assert not set(told) & {chr(code) for code in (*range(10), *range(11, 32), 127)}
    told.encode()


def test_text_is_not_markup():
    told = printed(view(text(["[bold]", "[/]", ":heart:"], label="[red]")))
    for word in ("[bold]", "[/]", ":heart:"):
        assert word in told
    assert told.count("[red]") == 2  # in the title and among the classes


def test_without_color_the_numbers_say_the_same():
    record = document(heads=2)
    plain = printed(view(record), force_terminal=True, no_color=True)
    colored = printed(view(record), force_terminal=True, color_system="truecolor")
    assert "\x1b[38;2" not in plain
    assert "48;2;" in colored
    piped = printed(view(record))
    assert "\x1b" not in piped
    for share in record.sentences.weights:
        assert f"{100 * share:.0f} %" in piped


def test_a_pair_is_shown_one_text_above_the_other():
    told = printed(view(pair()))
    assert told.index("first text") < told.index("night") < told.index("second text")
    assert told.index("second text") < told.index("home")


def test_the_strongest_flows_are_listed_with_their_direction():
    record = text(["so", "very", "well"])
    # Only one word gives anything: all to another.
    edges = [[0.8, 0.1, 0.2], [0.1, 0.2, 0.7], [0.1, 0.7, 0.1]]
    head = Head([1 / 3] * 3, edges)
    record.words[0] = Graph(["so", "very", "well"], [(0, 1)] * 3, [1 / 3] * 3, [head])
    told = printed(view(record))
    assert told.index("well → very 23 %") < told.index("well → so 6.7 %")
    assert told.index("very → well 23 %") < told.index("well → so 6.7 %")
    assert "so → so" not in told
    assert "→" not in printed(view(EVERY["no edges"]))
    assert "→" not in printed(view(EVERY["one word"]))


def test_a_document_shows_shares_of_sentences_and_flows_between_them():
    told = printed(view(document()))
    lines = told.splitlines()
    assert any(line.startswith("1 ") and "It" in line for line in lines)
    assert any(line.startswith("2 ") and "Good" in line for line in lines)
    assert "1 → 2" in told


def test_each_head_is_shown_alone():
    record = pair(heads=2)
    for head in (None, 0, 1):
        told = printed(view(record, head))
        for graph in record.words:
            weighed = zip(graph.nodes, shares(graph, head), strict=True)
            line = " ".join(f"{word} {100 * share:.0f}" for word, share in weighed)
            assert line in told
    with pytest.raises(ValueError, match="head 2"):
        view(record, 2)


def test_what_is_missing_is_said():
    assert "no words" in printed(view(text([])))
    assert "no words" in printed(view(document([])))
    assert "reads no further" in printed(view(text(truncated=True)))
    assert printed(view(document(truncated=True))).count("reads no further") == 3


def test_many_classes_are_summed_up():
    record = text()
    record.probabilities.clear()
    record.probabilities.update(good=0.5, **{f"class {k}": 0.05 for k in range(10)})
    told = printed(view(record))
    assert "3 others 15.0 %" in told
    assert "class 6" in told
    assert "class 7" not in told


def test_models_are_put_side_by_side_where_there_is_room():
    views = [view(text()), view(text(edges=False))]
    wide = printed(side_by_side(views, 100))
    assert wide.splitlines()[0].count("demo") == 2
    narrow = printed(side_by_side(views, 60), width=60)
    assert narrow.splitlines()[0].count("demo") == 1
    assert narrow.count("demo") == 2
    assert printed(side_by_side(views[:1], 60)) == printed(views[0])
