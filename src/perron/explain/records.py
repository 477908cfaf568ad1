"""Explanation records, and their JSON format."""

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
    """Solver that computed the weights of a graph.

    Attributes:
        method: ``direct`` (elimination) or ``power`` (power iteration).
        residual: ‖Aα - α‖₂ / ‖α‖₂, computed afterward in float64.
        iterations: Number of power iterations.
        converged: Whether power iteration met its stopping criterion. This does not
            guarantee that the weights are accurate.
    """

    method: Literal["direct", "power"]
    residual: float
    iterations: int | None = None
    converged: bool | None = None


@dataclass(frozen=True)
class Head:
    """Weights of the nodes in one head, and the graph they are computed from.

    Attributes:
        weights: Weights of the nodes, which sum to one.
        edges: ``edges[i][j]`` is the edge from node j to node i, rounded to seven
            digits. Each column sums to one. None for an aggregator without a graph.
        solver: Solver that computed the weights from the edges. None without a graph.
    """

    weights: list[float]
    edges: list[list[float]] | None = None
    solver: Solver | None = None


@dataclass(frozen=True)
class Graph:
    """The words of a text, or the sentences of a document, in reading order.

    Attributes:
        nodes: Words or sentences, as written in the text.
        spans: Start and end of each node in the text, in characters.
        weights: Weights of the nodes, averaged over the heads, which sum to one. None
            for an aggregator without weights.
        heads: Heads. Empty for an aggregator without weights.
        truncated: Whether the text is longer than the model reads.
    """

    nodes: list[str]
    spans: list[tuple[int, int]]
    weights: list[float] | None
    heads: list[Head]
    truncated: bool = False

    @property
    def has_edges(self) -> bool:
        """Whether the nodes are connected by edges, not just weighted."""
        return any(head.edges is not None for head in self.heads)

    def edges(self, head: int | None = None) -> np.ndarray:
        """Return the edges of one head, or the mean over all heads, (N, N).

        Entry (i, j) is the edge from node j to node i.

        Args:
            head: Index of the head. Defaults to the mean of all heads.
        """
        heads = self.heads if head is None else [self.heads[head]]
        edges = [head.edges for head in heads if head.edges is not None]
        if not edges:
            raise ValueError("this graph has no edges. Check has_edges first.")
        shape = (len(self.nodes), len(self.nodes))
        return np.mean([np.reshape(matrix, shape) for matrix in edges], axis=0)


@dataclass(frozen=True)
class ModelInfo:
    """Description of the model that a record was computed with.

    Attributes:
        name: Name of the model.
        kind: Input of the model: a text, a pair of texts, or a document.
        encoder: Name of the encoder.
        aggregator: Name of the aggregator.
    """

    name: str
    kind: Literal["text", "pair", "document"]
    encoder: str
    aggregator: str


@dataclass(frozen=True)
class Explanation:
    """A prediction with its word graphs. All views are rendered from this record.

    Attributes:
        model: Model that made the prediction.
        text: Text that was classified.
        pair: Second text of a pair.
        label: Most probable class.
        probabilities: Probability of each class.
        words: Word graphs: one for a text, two for a pair, one per sentence for a
            document.
        sentences: Graph over the sentences of a document.
        schema: Version of the JSON format.
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
        """All word graphs and, for a document, the graph over its sentences."""
        return self.words if self.sentences is None else [*self.words, self.sentences]

    @property
    def has_edges(self) -> bool:
        """Whether any of the graphs has edges."""
        return any(graph.has_edges for graph in self.graphs)

    def to_json(self) -> str:
        """Return the record as JSON. docs/graph.md documents the format."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Explanation":
        """Read a record from JSON, as written by `to_json`."""
        return from_json(text)

    def to_html(self) -> str:
        """Return an interactive page that shows the graph, in a single file."""
        from perron.explain.views import html_page

        return html_page([[self]])

    def _repr_html_(self) -> str:
        """Return HTML that shows the graph in a notebook."""
        from perron.explain.views import html_frame

        return html_frame(self)

    def to_svg(self, head: int | None = None) -> str:
        """Return an image of the graph as SVG.

        Args:
            head: Head to draw. Defaults to the mean of all heads.
        """
        from perron.explain.images import to_svg

        return to_svg(self, head)

    def save_png(self, path: str | Path, head: int | None = None) -> None:
        """Save an image of the graph as PNG.

        Args:
            path: Path of the file.
            head: Head to draw. Defaults to the mean of all heads.
        """
        from perron.explain.images import save_png

        save_png(self, path, head)

    def to_networkx(self, head: int | None = None) -> "networkx.DiGraph":
        """Return the graphs over words and sentences as one networkx graph.

        Args:
            head: Head to use. Defaults to the mean of all heads.
        """
        from perron.explain.views import to_networkx

        return to_networkx(self, head)


def to_json(record: Explanation) -> str:
    """Return the record as JSON."""
    # `dataclasses.asdict` would copy every edge.
    return json.dumps(record, default=_fields, ensure_ascii=False)


def _fields(part: object) -> dict[str, object]:
    if not is_dataclass(part):
        raise TypeError(f"a record must contain only dataclasses, got {part!r}.")
    return {field.name: getattr(part, field.name) for field in fields(part)}


def from_json(text: str | bytes) -> Explanation:
    """Read and validate a record of any schema version."""
    try:
        table = json.loads(text)
    except ValueError as error:
        raise _invalid_record(f"not valid JSON: {error}") from error
    if not isinstance(table, dict):
        raise _invalid_record("not a JSON object")
    try:
        record = _adapter().validate_python(migrate("graph", table))
    except ValidationError as error:
        raise _invalid_record(problems(error)[0]) from error
    for problem in (_record_problem(record), *map(_graph_problem, record.graphs)):
        if problem is not None:
            raise _invalid_record(problem)
    return record


def _record_problem(record: Explanation) -> str | None:
    """Return the first inconsistency of a record, if any."""
    kind = record.model.kind
    parts = {"text": 1, "pair": 2, "document": len(record.words)}[kind]
    if record.sentences is not None:
        parts = len(record.sentences.nodes)
    if len(record.words) != parts:
        return f"{len(record.words)} word graphs for {parts} texts or sentences"
    if (record.pair is None) != (kind != "pair"):
        return f"a {kind} with{'out' if record.pair is None else ''} a second text"
    if (record.sentences is None) != (kind != "document"):
        return f"a {kind} with{'out' if record.sentences is None else ''} sentences"
    if record.label not in record.probabilities:
        return f"the label {record.label} has no probability"
    return None


def _graph_problem(graph: Graph) -> str | None:
    """Return the first inconsistency of a graph, if any."""
    count = len(graph.nodes)
    rows: list[Sequence[object]] = [graph.spans]
    rows += [head.weights for head in graph.heads]
    for head in graph.heads:
        if head.edges is not None:
            rows += [head.edges, *head.edges]
    if graph.weights is not None:
        rows.append(graph.weights)
    if any(len(row) != count for row in rows):
        return (
            f"the number of spans, weights or edges of a graph does not match its "
            f"{count} nodes"
        )
    if (graph.weights is None) != (not graph.heads):
        return "a graph has weights without heads, or heads without weights"
    if len({head.edges is None for head in graph.heads}) > 1:
        return "only some heads of a graph have edges"
    return None


def _invalid_record(problem: str) -> DataError:
    return DataError(f"is not a graph record of schema {SCHEMA}: {problem}")


@cache
def _adapter() -> Any:
    return TypeAdapter(Explanation)
