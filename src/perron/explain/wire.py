"""The record as JSON, and back."""

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from perron.errors import DataError
from perron.explain.records import SCHEMA, Explanation, Graph


def to_json(record: Explanation) -> str:
    """Return the record as JSON."""
    # The fields one by one, as `dataclasses.asdict` would copy every edge.
    return json.dumps(record, default=_fields, ensure_ascii=False)


def _fields(part: object) -> dict[str, object]:
    if not is_dataclass(part):
        raise TypeError(f"no part of a record: {part!r}")
    return {field.name: getattr(part, field.name) for field in fields(part)}


def from_json(text: str | bytes) -> Explanation:
    """Read a record and check that it is one."""
    try:
        record = _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise _no_record(f"{where}: {first['msg']}") from error
    for problem in (_problem(record), *map(_problem_of_graph, record.graphs)):
        if problem is not None:
            raise _no_record(problem)
    return record


def _problem(record: Explanation) -> str | None:
    """Return what does not fit together in a record."""
    kind = record.model.kind
    parts = {"text": 1, "pair": 2, "document": len(record.words)}[kind]
    if record.sentences is not None:
        parts = len(record.sentences.nodes)
    if len(record.words) != parts:
        return f"{len(record.words)} graphs of words, but {parts} texts or sentences"
    if (record.pair is None) != (kind != "pair"):
        return f"a {kind} has {'no' if record.pair is None else 'a'} second text"
    if (record.sentences is None) != (kind != "document"):
        return f"a {kind} has {'no ' if record.sentences is None else ''}sentences"
    if record.label not in record.probabilities:
        return f"the label {record.label} has no probability"
    return None


def _problem_of_graph(graph: Graph) -> str | None:
    """Return what does not fit together in a graph."""
    count = len(graph.nodes)
    rows: list[Sequence[object]] = [graph.places]
    rows += [head.weights for head in graph.heads]
    for head in graph.heads:
        if head.edges is not None:
            rows += [head.edges, *head.edges]
    if graph.weights is not None:
        rows.append(graph.weights)
    if any(len(row) != count for row in rows):
        return f"a graph of {count} nodes has another number of numbers"
    if (graph.weights is None) != (not graph.heads):
        return "a graph has weights and no heads, or heads and no weights"
    if len({head.edges is None for head in graph.heads}) > 1:
        return "some heads of a graph have edges and some have not"
    return None


def _no_record(problem: str) -> DataError:
    return DataError(f"no record of the schema {SCHEMA}: {problem}")


@cache
def _adapter() -> Any:
    return TypeAdapter(Explanation)
