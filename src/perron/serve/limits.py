"""Limits of the server: the one definition of their names, defaults and bounds."""

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """How much the server accepts. Each field is an option of ``perron serve``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_body: int = Field(4_000_000, ge=1, description="Bytes per request.")
    max_texts: int = Field(256, ge=1, description="Texts per request.")
    max_words: int = Field(
        5000, ge=1, description="Words per text, as separated by whitespace."
    )
    max_characters: int = Field(50_000, ge=1, description="Characters per text.")
    max_explained_texts: int = Field(
        16, ge=1, description="Texts per request to /v1/explain."
    )
    max_explained_words: int = Field(
        1000,
        ge=1,
        description="Words per text to explain. Edges grow with their square.",
    )
    max_queue: int = Field(4096, ge=1, description="Texts that wait for computation.")
    max_batch: int = Field(256, ge=1, description="Texts per batch.")
    max_seconds: float = Field(30.0, ge=0.001, description="Seconds per request.")
    batch_wait: float = Field(
        0.002, ge=0, description="Seconds that an idle server waits for more texts."
    )
