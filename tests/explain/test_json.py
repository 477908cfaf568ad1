import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perron_tests.errors import mentions
from perron_tests.explanations import document, pair, plans
from perron_tests.models import AGGREGATORS
from perron_tests.pipelines import OTHERS, TEXTS, small_pipeline

from perron.errors import DataError
from perron.explain import Explanation
from perron.explain.build import _round_to_seven_digits
from perron.explain.records import SCHEMA
from perron.migrations import current_version


@settings(deadline=None)
@given(plans(st.text(max_size=8)))
def test_records_survive_a_round_trip(plan):
    record = plan()
    assert Explanation.from_json(record.to_json()) == record
    assert Explanation.from_json(record.to_json().encode()) == record


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_records_of_models_survive_a_round_trip(kind, aggregator):
    pipeline = small_pipeline(kind, aggregator)
    for text, other in zip(TEXTS, OTHERS, strict=True):
        record = pipeline.explain(text, other if kind == "pair" else None)
        assert Explanation.from_json(record.to_json()) == record
        assert json.loads(record.to_json())["schema"] == "perron-graph-3"


def changed_json(record, change):
    table = json.loads(record.to_json())
    change(table)
    return json.dumps(table)


# For each kind of invalid record: a change, and the parts of the error message.
INVALID = {
    "schema": (lambda table: table.update(schema="2"), ["schema", "'2'"]),
    "newer": (lambda table: table.update(schema="perron-graph-99"), ["newer", "99"]),
    "kind": (
        lambda table: table["model"].update(kind="song"),
        ["model.kind", "'song'"],
    ),
    "no words": (lambda table: table.update(words=None), ["words", None]),
    "probability": (
        lambda table: table["probabilities"].update(good="high"),
        ["probabilities.good", "'high'"],
    ),
    "no text": (lambda table: table.pop("text"), ["text is missing"]),
    "label": (lambda table: table.update(label="nice"), ["label", "nice"]),
    "one graph": (lambda table: table["words"].pop(), ["1 word graphs", "2 texts"]),
    "no second text": (lambda table: table.update(pair=None), ["pair", "second text"]),
    "sentences of a pair": (
        lambda table: table.update(
            sentences={**table["words"][0], "nodes": ["a", "b"]}
        ),
        ["pair", "sentences"],
    ),
    "a row of edges": (
        lambda table: table["words"][0]["heads"][0]["edges"].pop(),
        ["8 nodes"],
    ),
    "an edge": (
        lambda table: table["words"][0]["heads"][0]["edges"][3].pop(),
        ["8 nodes"],
    ),
    "a span": (lambda table: table["words"][0]["spans"].pop(), ["8 nodes"]),
    "a weight": (lambda table: table["words"][0]["weights"].pop(), ["8 nodes"]),
    "heads": (lambda table: table["words"][1].update(heads=[]), ["weights", "heads"]),
    "edges of one head": (
        lambda table: table["words"][1]["heads"][0].update(edges=None),
        ["heads", "edges"],
    ),
}


@pytest.mark.parametrize("kind", INVALID)
def test_an_invalid_record_is_an_error_with_the_reason(kind):
    change, parts = INVALID[kind]
    text = changed_json(pair(heads=2), change)
    with pytest.raises(DataError, match=mentions(*parts)):
        Explanation.from_json(text)


def test_truncated_json_is_an_error():
    with pytest.raises(DataError, match=mentions("perron-graph-3", "JSON")):
        Explanation.from_json(pair(heads=2).to_json()[:-1])


def test_the_schema_is_the_current_version():
    assert f"perron-graph-{current_version('graph')}" == SCHEMA


def test_unknown_fields_are_ignored():
    def add(table):
        table["color"] = table["words"][0]["heads"][1]["color"] = "red"

    record = pair(heads=2)
    assert Explanation.from_json(changed_json(record, add)) == record


@pytest.mark.parametrize("content", ["[]", "3", "null", b"\xff"])
def test_json_other_than_an_object_is_an_error(content):
    with pytest.raises(DataError, match="not a graph record"):
        Explanation.from_json(content)


def test_a_document_needs_a_graph_per_sentence():
    text = changed_json(document(), lambda table: table["words"].pop())
    with pytest.raises(DataError, match=mentions("1 word graphs", 2)):
        Explanation.from_json(text)
    text = changed_json(document(), lambda table: table.update(sentences=None))
    with pytest.raises(DataError, match=mentions("document", "sentences")):
        Explanation.from_json(text)


@given(st.floats(0, 1, allow_subnormal=True))
def test_rounded_numbers_have_at_most_seven_digits(number):
    (rounded,) = _round_to_seven_digits(np.array([number]))
    assert abs(rounded - number) <= 5e-7 * number
    digits = repr(float(rounded)).split("e")[0].replace(".", "").strip("0")
    assert number < 1e-16 or len(digits) <= 7


def test_tiny_numbers_and_zero_are_not_rounded():
    numbers = np.array([0.0, 5e-324, 1e-300, 3.14159265358979e-20, 1.0])
    np.testing.assert_array_equal(_round_to_seven_digits(numbers), numbers)


def test_rounded_edges_make_the_json_much_shorter():
    record = small_pipeline("text").explain("a film a film a film a film")
    edges = record.words[0].heads[0].edges
    full = np.random.default_rng(0).random((8, 8)).tolist()
    assert len(json.dumps(edges)) < 0.6 * len(json.dumps(full))
