"""What tells one saved model from another: a digest of its files."""

import hashlib
from functools import lru_cache
from pathlib import Path

import torch

from perron.errors import DataError
from perron.models.io import CONFIG, WEIGHTS
from perron.pipeline import TOKENIZER, Pipeline, load


def fingerprint_of(folder: Path) -> str:
    """Return a digest of weights, words and configuration."""
    told = hashlib.sha256()
    for name in (CONFIG, TOKENIZER, WEIGHTS):
        try:
            with (folder / name).open("rb") as file:
                told.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", folder / name) from (
                error
            )
    return told.hexdigest()


@lru_cache(maxsize=2)
def loaded(folder: str, fingerprint: str, tokenised: bool) -> Pipeline:
    """Load a model once a process, and only the one that was asked for.

    Raises:
        DataError: there is another model in the folder by now.
    """
    if fingerprint_of(Path(folder)) != fingerprint:
        raise DataError(
            "holds another model than when this work began: begin again, or put the "
            "first one back",
            folder,
        )
    pipeline = load(folder)
    if tokenised:
        words = pipeline.word_ids
        pipeline.word_ids = words.reading(True, words.sentence_mark)
    return pipeline


def limit_threads(threads: int | None) -> None:
    """Let torch use that many threads in this process; None leaves it as it is."""
    if threads is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
