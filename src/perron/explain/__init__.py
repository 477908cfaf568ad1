"""The word graph as a plain record."""

from perron.explain.records import Explanation, Graph, explain

__all__ = ["Explanation", "Graph", "explain"]
