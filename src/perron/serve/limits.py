"""Names, defaults and bounds of the server's limits.

`Limits` is a dataclass and not a pydantic model, because the command line imports it at
every start, and importing pydantic takes a tenth of a second. The field metadata are
arguments of pydantic's ``Field``, which adds them to the OpenAPI document.
"""

from dataclasses import dataclass, field, fields
from typing import Any


def _limit(default: Any, description: str, ge: int | float = 1) -> Any:
    return field(default=default, metadata={"ge": ge, "description": description})


@dataclass(frozen=True)
class Limits:
    """Limits of the server. Each field is an option of ``perron serve``."""

    max_body: int = _limit(4_000_000, "Bytes per request.")
    max_texts: int = _limit(256, "Texts per request.")
    max_words: int = _limit(5000, "Words per text, separated by whitespace.")
    max_characters: int = _limit(50_000, "Characters per text.")
    max_explained_texts: int = _limit(16, "Texts per request to /v1/explain.")
    max_explained_words: int = _limit(
        1000,
        "Words per text to /v1/explain. The number of edges grows with the square of "
        "the number of words.",
    )
    max_queue: int = _limit(4096, "Texts waiting to be computed.")
    max_batch: int = _limit(256, "Texts per batch.")
    max_seconds: float = _limit(30.0, "Seconds per request.", ge=0.001)
    batch_wait: float = _limit(
        0.002, "Seconds that an idle server waits for more texts.", ge=0
    )

    def __post_init__(self) -> None:
        """Validate the bounds."""
        for limit in fields(self):
            value, minimum = getattr(self, limit.name), limit.metadata["ge"]
            if not value >= minimum:
                raise ValueError(
                    f"{limit.name} must be at least {minimum}, got {value}."
                )
