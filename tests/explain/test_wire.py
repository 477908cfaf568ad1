import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perron_tests.explanations import document, pair, plans
from perron_tests.models import AGGREGATORS
from perron_tests.pipelines import OTHERS, TEXTS, small_pipeline

from perron.errors import DataError
from perron.explain import Explanation
from perron.explain.build import _in_seven_digits


@settings(deadline=None)
@given(plans(st.text(max_size=8)))
def test_what_is_written_is_read_again(plan):
    record = plan()
    assert Explanation.from_json(record.to_json()) == record
    assert Explanation.from_json(record.to_json().encode()) == record


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("kind", ["text", "document", "pair"])
def test_a_models_records_are_read_again(kind, aggregator):
    pipeline = small_pipeline(kind, aggregator)
    for one, other in zip(TEXTS, OTHERS, strict=True):
        record = pipeline.explain(one, other if kind == "pair" else None)
        again = Explanation.from_json(record.to_json())
        assert again == record
        assert json.loads(record.to_json())["schema"] == "perron-graph-1"


def changed(record, change):
    table = json.loads(record.to_json())
    change(table)
    return json.dumps(table)


MALFORMED = {
    "the whole: Invalid JSON": lambda table: None,
    "schema: Input should be 'perron-graph-1'": lambda table: table.update(schema="2"),
    "model.kind: Input should be": lambda table: table["model"].update(kind="song"),
    "words: Input should be a valid array": lambda table: table.update(words=None),
    "probabilities.good: Input should be a valid number": (
        lambda table: table["probabilities"].update(good="much")
    ),
    "text: Field required": lambda table: table.pop("text"),
    "label nice has no probability": lambda table: table.update(label="nice"),
    "1 graphs of words, but 2 texts": lambda table: table["words"].pop(),
    "a pair has no second text": lambda table: table.update(pair=None),
    "a pair has sentences": (
        lambda table: table.update(sentences={**table["words"][0], "nodes": ["a", "b"]})
    ),
    "a graph of 8 nodes has another number": (
        lambda table: table["words"][0]["heads"][0]["edges"].pop()
    ),
    "of 8 nodes has": lambda table: table["words"][0]["heads"][0]["edges"][3].pop(),
    "8 nodes has": lambda table: table["words"][0]["places"].pop(),
    "nodes has another number": lambda table: table["words"][0]["weights"].pop(),
    "weights and no heads": lambda table: table["words"][1].update(heads=[]),
    "some heads of a graph have edges": (
        lambda table: table["words"][1]["heads"][0].update(edges=None)
    ),
}


@pytest.mark.parametrize("problem", MALFORMED)
def test_a_malformed_record_is_refused_with_the_reason(problem):
    written = changed(pair(heads=2), MALFORMED[problem])
    if "Invalid JSON" in problem:
        written = written[:-1]
    with pytest.raises(DataError, match="no record of the schema perron-graph-1") as no:
        Explanation.from_json(written)
    assert problem in str(no.value)


def test_a_document_has_as_many_graphs_as_sentences():
    written = changed(document(), lambda table: table["words"].pop())
    with pytest.raises(DataError, match="1 graphs of words, but 2"):
        Explanation.from_json(written)
    written = changed(document(), lambda table: table.update(sentences=None))
    with pytest.raises(DataError, match="a document has no sentences"):
        Explanation.from_json(written)


@given(st.floats(0, 1, allow_subnormal=True))
def test_seven_digits_are_kept_and_the_decimals_are_short(number):
    (short,) = _in_seven_digits(np.array([number]))
    assert abs(short - number) <= 5e-7 * number
    digits = repr(float(short)).split("e")[0].replace(".", "").strip("0")
    assert number < 1e-16 or len(digits) <= 7


def test_tiny_numbers_and_zero_stay_what_they_are():
    numbers = np.array([0.0, 5e-324, 1e-300, 3.14159265358979e-20, 1.0])
    np.testing.assert_array_equal(_in_seven_digits(numbers), numbers)


def test_a_file_of_edges_is_much_shorter_than_in_full():
    record = small_pipeline("text").explain("a film a film a film a film")
    edges = record.words[0].heads[0].edges
    full = np.random.default_rng(0).random((8, 8)).tolist()
    assert len(json.dumps(edges)) < 0.6 * len(json.dumps(full))
