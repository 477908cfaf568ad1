"""Limits of the server: the one definition of their names, defaults and bounds.

A dataclass and not a pydantic model, because the command line reads it whenever it
starts, and importing pydantic takes a tenth of a second. The metadata of the fields are
arguments of pydantic's ``Field``, so that the OpenAPI document has them too.
"""

from dataclasses import dataclass, field, fields
from typing import Any


def _limit(default: Any, description: str, ge: int | float = 1) -> Any:
    return field(default=default, metadata={"ge": ge, "description": description})


@dataclass(frozen=True)
class Limits:
    """How much the server accepts. Each field is an option of ``perron serve``."""

    max_body: int = _limit(4_000_000, "Bytes per request.")
    max_texts: int = _limit(256, "Texts per request.")
    max_words: int = _limit(5000, "Words per text, as separated by whitespace.")
    max_characters: int = _limit(50_000, "Characters per text.")
    max_explained_texts: int = _limit(16, "Texts per request to /v1/explain.")
    max_explained_words: int = _limit(
        1000, "Words per text to explain. Edges grow with their square."
    )
    max_queue: int = _limit(4096, "Texts that wait for computation.")
    max_batch: int = _limit(256, "Texts per batch.")
    max_seconds: float = _limit(30.0, "Seconds per request.", ge=0.001)
    batch_wait: float = _limit(
        0.002, "Seconds that an idle server waits for more texts.", ge=0
    )

    def __post_init__(self) -> None:
        """Validate the bounds."""
        for each in fields(self):
            value, least = getattr(self, each.name), each.metadata["ge"]
            if not value >= least:
                raise ValueError(f"{each.name} must be at least {least}, got {value}.")
