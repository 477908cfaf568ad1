"""One layout of the graph, for all pictures of it."""

from perron.explain.picture.layout import lay_out
from perron.explain.picture.shapes import Arc, Picture, Section, Text, Tile

__all__ = ["Arc", "Picture", "Section", "Text", "Tile", "lay_out"]
