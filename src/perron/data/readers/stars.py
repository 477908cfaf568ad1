"""Yelp and IMDB reviews: user, product, rating and text, parted by two tabs."""

from collections.abc import Iterator
from pathlib import Path

from perron.data.readers.rows import BadRows, Row, numbered_lines


def read_stars(path: Path, bad: BadRows) -> Iterator[Row]:
    """Yield each review with its rating, a whole number, as the label."""
    for number, line in numbered_lines(path, bad):
        if not line.strip():
            continue
        fields = line.split("\t\t", maxsplit=3)
        if len(fields) != 4:
            problem = f"{len(fields)} fields instead of user, product, rating and text"
            bad.report(path, number, f"{problem}, parted by two tabs")
            continue
        rating = fields[2].strip()
        if not rating.isdecimal():
            bad.report(path, number, f"the rating {rating!r} is not a whole number")
            continue
        yield Row(number, fields[3].strip(), rating)
