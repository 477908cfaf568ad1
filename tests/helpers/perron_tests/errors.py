"""What an error message must name, whatever its sentence.

A test of an error pins the type, the parameter (option, file, column, line), the value
and the remedy. The words around them may change.
"""

import re

from pydantic import ValidationError


def mentions(*parts: object) -> str:
    """Return a pattern, for `match=`, that finds all `parts` in any order.

    A part is a whole word or number: 1 is not in "10", "1.5", "-1" or "h_1".
    """
    return "".join(rf"(?=[\s\S]*{_whole(str(part))})" for part in parts)


def assert_mentions(text: str, *parts: object) -> None:
    """Assert that `text`, for instance what a command printed, has all `parts`."""
    missing = [part for part in parts if not re.search(_whole(str(part)), text)]
    assert not missing, f"{missing} not in: {text}"


def problem_of(error: ValidationError) -> str:
    """Return what is wrong and where; pydantic's own text also repeats the input."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _whole(part: str) -> str:
    before = r"(?<![\w-])(?<!\d\.)" if re.match(r"\d", part) else ""
    before = before or (r"(?<!\w)" if re.match(r"\w", part) else "")
    after = r"(?!\w)(?!\.\d)" if re.search(r"\w\Z", part) else ""
    return before + re.escape(part) + after
