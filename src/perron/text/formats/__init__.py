"""Data formats, each with its reader; importing this package registers them all.

A format of your own is a subclass of `Format` with a ``name``.
"""

# Those of the hub and of corpora come after the tables, which most data are.
from perron.text.formats import corpora, tabular
from perron.text.formats.base import (
    DataFile,
    Format,
    Lines,
    check_encoding,
    find_file,
    format_named,
    format_of,
    formats,
)
from perron.text.formats.rows import Columns, Row, checked, text_problem

__all__ = [
    "Columns",
    "DataFile",
    "Format",
    "Lines",
    "Row",
    "check_encoding",
    "checked",
    "corpora",
    "find_file",
    "format_named",
    "format_of",
    "formats",
    "tabular",
    "text_problem",
]
