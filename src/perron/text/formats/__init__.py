"""Data formats, each with its reader; importing this package registers them all.

A format of your own is a subclass of `Format` with a ``name``.
"""

import perron.text.formats.corpora
import perron.text.formats.tabular  # noqa: F401
from perron.text.formats.base import (
    DataFile,
    Format,
    find_file,
    format_named,
    format_of,
    formats,
)
from perron.text.formats.rows import Columns, Row

__all__ = [
    "Columns",
    "DataFile",
    "Format",
    "Row",
    "find_file",
    "format_named",
    "format_of",
    "formats",
]
