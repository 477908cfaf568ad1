"""Explanations: the record of a word graph, and views of it."""

from perron.explain.build import explain
from perron.explain.records import Explanation, Graph, Head, ModelInfo, Solver

__all__ = ["Explanation", "Graph", "Head", "ModelInfo", "Solver", "explain"]
