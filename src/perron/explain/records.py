"""The record of an explanation, and its JSON form."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from perron.errors import DataError
from perron.migrations import migrate
from perron.models.config import problems

if TYPE_CHECKING:
    import networkx


SCHEMA: Literal["perron-graph-3"] = "perron-graph-3"


@dataclass(frozen=True)
class Solver:
    """How the weights of a graph were found.

    Attributes:
        method: ``direct``, by elimination, or ``power``, by the power method.
        residual: ‖Aα - α‖₂ / ‖α‖₂, measured afterwards.
        iterations: of the power method.
        converged: whether it met its stopping rule, which is not the same as right.
    """

    method: Literal["direct", "power"]
    residual: float
    iterations: int | None = None
    converged: bool | None = None


@dataclass(frozen=True)
class Head:
    """One weighting of the nodes, and the graph that it comes from.

    Attributes:
        weights: what share of the whole each node weighs.
        edges: ``edges[i][j]`` from node j to node i, seven digits of it; each column
            sums to one. None for an aggregator without a graph.
        solver: how the weights follow from the edges. None without a graph.
    """

    weights: list[float]
    edges: list[list[float]] | None = None
    solver: Solver | None = None


@dataclass(frozen=True)
class Graph:
    """Nodes in reading order: the words of a text, or the sentences of a document.

    Attributes:
        nodes: as they stand in the text.
        spans: begin and end of each node in the text, in characters.
        weights: what share of the whole each weighs, the mean of the heads. None for an
            aggregator without.
        heads: one or more; none for an aggregator without weights.
        truncated: the text goes on, but the model reads no more of it.
    """

    nodes: list[str]
    spans: list[tuple[int, int]]
    weights: list[float] | None
    heads: list[Head]
    truncated: bool = False

    @property
    def has_edges(self) -> bool:
        """Whether this is a graph, and not just words with weights."""
        return any(head.edges is not None for head in self.heads)

    def edges(self, head: int | None = None) -> np.ndarray:
        """Return the edges of one head, or their mean, (N, N), from j to i."""
        chosen = self.heads if head is None else [self.heads[head]]
        edges = [one.edges for one in chosen if one.edges is not None]
        if not edges:
            raise ValueError("these nodes have no edges; see has_edges")
        shape = (len(self.nodes), len(self.nodes))
        return np.mean([np.reshape(one, shape) for one in edges], axis=0)


@dataclass(frozen=True)
class ModelInfo:
    """The model that a record comes from: its name and what it is made of."""

    name: str
    kind: Literal["text", "pair", "document"]
    encoder: str
    aggregator: str


@dataclass(frozen=True)
class Explanation:
    """A prediction and what it rests on: a record that every view is made from.

    Attributes:
        model: where it comes from.
        text: as it was given.
        pair: the second text, of a pair.
        label: of the most probable class.
        probabilities: of each class.
        words: a graph for the text; for both texts of a pair; for each sentence of a
            document.
        sentences: the graph between the sentences of a document.
        schema: the version of this record as JSON.
    """

    model: ModelInfo
    text: str
    pair: str | None
    label: str
    probabilities: dict[str, float]
    words: list[Graph]
    sentences: Graph | None = None
    schema: Literal["perron-graph-3"] = SCHEMA

    @property
    def graphs(self) -> list[Graph]:
        """All graphs: the words', and the sentences' of a document."""
        return self.words if self.sentences is None else [*self.words, self.sentences]

    @property
    def has_edges(self) -> bool:
        """Whether there is a graph to look at, at any level."""
        return any(graph.has_edges for graph in self.graphs)

    def to_json(self) -> str:
        """Return the record as JSON; docs/graph.md tells what is in it."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Explanation":
        """Read what `to_json` wrote."""
        return from_json(text)

    def to_html(self) -> str:
        """Return a page to look at the graph, in one file."""
        from perron.explain.views import page

        return page([[self]])

    def _repr_html_(self) -> str:
        """Show the graph in a notebook."""
        from perron.explain.views import framed

        return framed(self)

    def to_svg(self, head: int | None = None) -> str:
        """Return a picture of the graph, of one head or of their mean."""
        from perron.explain.images import svg

        return svg(self, head)

    def save_png(self, path: str | Path, head: int | None = None) -> None:
        """Write a picture of the graph."""
        from perron.explain.images import save_png

        save_png(self, path, head)

    def to_networkx(self, head: int | None = None) -> "networkx.DiGraph":
        """Return all words, and sentences, as one graph for networkx."""
        from perron.explain.views import to_networkx

        return to_networkx(self, head)


def to_json(record: Explanation) -> str:
    """Return the record as JSON."""
    # The fields one by one, as `dataclasses.asdict` would copy every edge.
    return json.dumps(record, default=_fields, ensure_ascii=False)


def _fields(part: object) -> dict[str, object]:
    if not is_dataclass(part):
        raise TypeError(f"no part of a record: {part!r}")
    return {field.name: getattr(part, field.name) for field in fields(part)}


def from_json(text: str | bytes) -> Explanation:
    """Read a record of any version and check it."""
    try:
        table = json.loads(text)
    except ValueError as error:
        raise _no_record(f"not valid JSON: {error}") from error
    if not isinstance(table, dict):
        raise _no_record("not a JSON object")
    try:
        record = _adapter().validate_python(migrate("graph", table))
    except ValidationError as error:
        raise _no_record(problems(error)[0]) from error
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
    rows: list[Sequence[object]] = [graph.spans]
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
    return DataError(f"is not a graph record of schema {SCHEMA}: {problem}")


@cache
def _adapter() -> Any:
    return TypeAdapter(Explanation)
