"""Assertions on error messages that do not depend on the exact wording.

Tests check the type of an error, the parameter (option, file, column, line), the value
and the suggested fix. The wording may change.
"""

import re

from pydantic import ValidationError


def mentions(*parts: object) -> str:
    """Return a pattern for `match=` that requires all `parts`, in any order.

    Parts match complete words and numbers: 1 does not match "10", "1.5", "-1" or "h_1".
    """
    return "".join(rf"(?=[\s\S]*{_word_pattern(str(part))})" for part in parts)


def assert_mentions(text: str, *parts: object) -> None:
    """Assert that `text`, such as the output of a command, contains all `parts`."""
    missing = [part for part in parts if not re.search(_word_pattern(str(part)), text)]
    assert not missing, f"{missing} not in: {text}"


def first_problem(error: ValidationError) -> str:
    """Return the location and message of the first error, without the input."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _word_pattern(part: str) -> str:
    before = r"(?<![\w-])(?<!\d\.)" if re.match(r"\d", part) else ""
    before = before or (r"(?<!\w)" if re.match(r"\w", part) else "")
    after = r"(?!\w)(?!\.\d)" if re.search(r"\w\Z", part) else ""
    return before + re.escape(part) + after
