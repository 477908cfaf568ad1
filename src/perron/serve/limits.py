"""Names, defaults and bounds of the server's limits.

`Limits` is a dataclass and not a pydantic model, because the command line imports it at
every start, and importing pydantic takes a tenth of a second. The field metadata
contains arguments of pydantic's ``Field``, which adds them to the OpenAPI document.
"""

from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Limits:
    """Limits of the server. Each field is an option of ``perron serve``."""

    max_body: int = field(
        default=4_000_000,
        metadata={"ge": 1, "description": "Maximum size of a request body, in bytes."},
    )
    max_texts: int = field(
        default=256,
        metadata={"ge": 1, "description": "Maximum number of texts per request."},
    )
    max_words: int = field(
        default=5000,
        metadata={
            "ge": 1,
            "description": "Maximum number of words per text, separated by whitespace.",
        },
    )
    max_characters: int = field(
        default=50_000,
        metadata={"ge": 1, "description": "Maximum number of characters per text."},
    )
    max_explained_texts: int = field(
        default=16,
        metadata={
            "ge": 1,
            "description": "Maximum number of texts per request to /v1/explain.",
        },
    )
    max_explained_words: int = field(
        default=1000,
        metadata={
            "ge": 1,
            "description": "Maximum number of words per text in a request to "
            "/v1/explain. The number of edges grows with the square of the number of "
            "words.",
        },
    )
    max_queue: int = field(
        default=4096,
        metadata={
            "ge": 1,
            "description": "Maximum number of texts waiting to be computed.",
        },
    )
    max_batch: int = field(
        default=256,
        metadata={"ge": 1, "description": "Maximum number of texts per batch."},
    )
    max_seconds: float = field(
        default=30.0,
        metadata={"ge": 0.001, "description": "Maximum time per request, in seconds."},
    )
    batch_wait: float = field(
        default=0.002,
        metadata={
            "ge": 0,
            "description": "Time that an idle thread waits for more texts to join a "
            "batch, in seconds.",
        },
    )

    def __post_init__(self) -> None:
        """Validate the bounds."""
        for limit in fields(self):
            value, minimum = getattr(self, limit.name), limit.metadata["ge"]
            if not value >= minimum:
                raise ValueError(
                    f"{limit.name} must be at least {minimum}, got {value}."
                )
