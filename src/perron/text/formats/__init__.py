"""Data formats. Importing this package registers all built-in formats.

To add a format, subclass `Format` and set ``name``.
"""

import perron.text.formats.corpora
import perron.text.formats.tabular  # noqa: F401
from perron.text.formats.base import (
    DataFile,
    Format,
    find_file,
    formats,
    get_format,
    infer_format,
)
from perron.text.formats.rows import Columns, Row

__all__ = [
    "Columns",
    "DataFile",
    "Format",
    "Row",
    "find_file",
    "formats",
    "get_format",
    "infer_format",
]
