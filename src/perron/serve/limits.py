"""How much one client may ask for, and what is told to one that asks for more."""

import asyncio
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect, Request

from perron.serve.responses import Refused, gone

# Of a body that does not tell its length, so many times what is allowed is read: a
# client that is still sending when its connection is closed does not see the answer.
_PATIENCE = 4


class Limits(BaseModel):
    """What the server takes on; `GET /v1/models` lists it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_body: int = Field(4_000_000, ge=1, description="bytes of a request")
    max_texts: int = Field(256, ge=1, description="texts of a request")
    max_words: int = Field(5000, ge=1, description="words of a text, parted by blanks")
    max_characters: int = Field(50_000, ge=1, description="characters of a text")
    max_explained_texts: int = Field(
        16, ge=1, description="texts of a request to /v1/explain"
    )
    max_explained_words: int = Field(
        1000,
        ge=1,
        description="words of a text to explain: edges grow with their square",
    )
    max_queue: int = Field(4096, ge=1, description="texts that wait to be computed")
    max_batch: int = Field(256, ge=1, description="texts that are pooled together")
    max_seconds: float = Field(30.0, gt=0, description="time for a request")
    batch_wait: float = Field(
        0.002, ge=0, description="seconds that an idle server waits for more texts"
    )

    def check(
        self, name: str, texts: Sequence[str], max_texts: int, max_words: int
    ) -> None:
        """Refuse too many texts, or too long ones."""
        if len(texts) > max_texts:
            raise Refused(
                422,
                "too_many_texts",
                f"{len(texts)} texts, but a request may have {max_texts}: send several",
                name,
            )
        for place, text in enumerate(texts):
            where = f"{name}.{place}"
            if len(text) > self.max_characters:
                raise Refused(
                    422,
                    "too_many_characters",
                    f"a text of {len(text)} characters, but it may have "
                    f"{self.max_characters}: send a shorter one",
                    where,
                )
            # Words and the blanks between them: a short text need not be split.
            if len(text) >= 2 * max_words and len(text.split()) > max_words:
                raise too_many_words(max_words, where)


def too_many_words(max_words: int, where: str) -> Refused:
    """Return what is told about a text that is too long."""
    return Refused(
        422,
        "too_many_words",
        f"a text may have {max_words} words here: send a shorter one",
        where,
    )


async def read_body(request: Request, limits: Limits, deadline: float) -> bytes:
    """Return the body, but never keep more of it than is allowed."""
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > limits.max_body:
        raise _too_large(limits)
    parts, size = [], 0
    try:
        async with asyncio.timeout_at(deadline):
            async for part in request.stream():
                size += len(part)
                if size <= limits.max_body:
                    parts.append(part)
                elif size > _PATIENCE * limits.max_body:
                    break
    except ClientDisconnect:
        raise gone() from None
    except TimeoutError:
        raise Refused(
            408,
            "body_too_slow",
            f"the request did not arrive within {limits.max_seconds:g} seconds",
            headers={"connection": "close"},
        ) from None
    if size > limits.max_body:
        raise _too_large(limits)
    return b"".join(parts)


def _too_large(limits: Limits) -> Refused:
    message = f"a request may have {limits.max_body} bytes: send fewer texts at once"
    return Refused(413, "body_too_large", message)
