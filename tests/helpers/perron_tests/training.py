"""Synthetic texts and a small model, for training runs that take a second."""

import os
import random
import signal
from pathlib import Path
from typing import Any

from perron.training import Recipe, train
from perron.training.callbacks import Callback
from perron.training.state import TrainingInterrupted

GOOD = ["fine", "lovely", "bright", "warm"]
BAD = ["dull", "gray", "cold", "sour"]
NEUTRAL = ["the", "film", "was", "a", "day", "and", "then", "some"]


def write_texts(path: Path, rows: int = 120, seed: int = 0) -> Path:
    """Write a CSV file in which one word of each text determines its label."""
    rng = random.Random(seed)
    lines = ["text,label"]
    for row in range(rows):
        words = rng.choices(NEUTRAL, k=rng.randint(0, 9))
        words.insert(rng.randint(0, len(words)), rng.choice([BAD, GOOD][row % 2]))
        lines.append(f"{' '.join(words)},{['bad', 'good'][row % 2]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def tiny_table(path: Path, aggregator: str = "centrality") -> dict[str, Any]:
    """Return settings to train on a file, for 4 epochs of at least 12 batches."""
    return {
        "data": {"format": "csv", "train": str(path)},
        "model": {
            "embedding": {"embedding_dim": 8, "dropout": 0.2},
            "encoder": {"name": "bilstm", "hidden_dim": 4},
            "aggregator": aggregator,
            "head": {"hidden_dim": 5, "dropout": 0.2},
        },
        "training": {
            "learning_rate": 0.02,
            "batch_size": 8,
            "min_batch_size": 4,
            "max_epochs": 4,
            "patience": 4,
            "precision": "fp32",
            "checkpoint_seconds": 0.0,
        },
    }


class StopAfter(Callback):
    """Sends SIGTERM at the end of an epoch, counted from 1."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_end(self, loop, record) -> None:
        if loop.state.epoch == self.epoch:
            os.kill(os.getpid(), signal.SIGTERM)


def stopped_run(recipe: Recipe, folder: Path, epoch: int) -> Path:
    """Train in a folder, stopped by a signal at the end of an epoch."""
    try:
        train(recipe, folder, callbacks=[StopAfter(epoch)])
    except TrainingInterrupted:
        return folder
    raise AssertionError("the run was not stopped")


# Options of `perron train` for a model that trains in a second.
TINY = [
    "--vectors=none",
    "--set=model.embedding={embedding_dim=8}",
    "--set=model.encoder.hidden_dim=4",
    "--set=training.max_epochs=4",
    "--set=training.learning_rate=0.03",
    "--set=training.batch_size=8",
    "--set=training.min_batch_size=8",
]
