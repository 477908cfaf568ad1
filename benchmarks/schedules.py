"""Which learning rate schedule suits your own data, whatever its size?

Trains the model of the recipe ``own`` on samples of Rotten Tomatoes (binary) and SST-1
(five classes; the largest sample is of its phrases) with each schedule and several
seeds. The accuracy is that of the best epoch on dev data that did not select it: the
epoch that is best on one half of dev is evaluated on the other half, and vice versa.
Otherwise, a schedule with more epochs would have more chances.

    python benchmarks/schedules.py [--sizes 500 2000] [--variants linear] [--seeds 3]

SST-1 is read from the folder in PERRON_DATA. Each run is a line in --out, and runs that
are already there are not repeated.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from perron.training import read_recipe, recipe_table
from perron.training.callbacks import Callback
from perron.training.loop import Loop
from perron.training.metrics import evaluate
from perron.training.prepare import prepare

TREES = {
    "format": "sst",
    "train": "sst/trees/train.txt",
    "dev": "sst/trees/dev.txt",
    "test": "sst/trees/test.txt",
}
# Number of training texts -> data settings.
DATA: dict[int, dict[str, Any]] = {
    500: {"format": "rotten-tomatoes", "max_train_rows": 500},
    2000: {"format": "rotten-tomatoes", "max_train_rows": 2000},
    6824: {"format": "rotten-tomatoes"},
    8544: TREES,
    30000: {**TREES, "phrases": True, "max_train_rows": 30000},
}
BEFORE = {
    "lr_scheduler_type": "staircase",
    "warmup_ratio": 0.0,
    "learning_rate_decay": 0.9,
    "learning_rate_decay_steps": 100,
    "batch_size": 32,
    "min_batch_size": 8,
    "max_epochs": 40,
    "patience": 8,
}


LINEAR = BEFORE | {
    "lr_scheduler_type": "linear",
    "warmup_ratio": 0.1,
    "max_epochs": 20,
    "patience": 20,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "staircase": BEFORE,
    "linear": LINEAR,  # the recipe
    "linear-of-16": LINEAR | {"batch_size": 16, "min_batch_size": 16},
    "linear-early-stopping": LINEAR | {"patience": 8},
    "cosine": LINEAR | {"lr_scheduler_type": "cosine"},
    "constant": LINEAR | {"lr_scheduler_type": "constant"},
}


class Epochs(Callback):
    """Keeps the predictions for dev data after each epoch."""

    def __init__(self) -> None:
        self.correct: list[np.ndarray] = []
        self.log_loss: list[float] = []

    def on_evaluate(self, loop: Loop, record: dict[str, Any]) -> None:
        assert loop.dev is not None
        self.correct.append(evaluate(loop.model, loop.dev).correct)
        self.log_loss.append(record["dev_log_loss"])

    def accuracy(self) -> float:
        """Return the accuracy on each half of dev, at the best epoch on the other."""
        correct = np.stack(self.correct)
        halves = correct[:, ::2], correct[:, 1::2]
        values = [
            other[half.mean(1).argmax()] for half, other in (halves, halves[::-1])
        ]
        return float(np.concatenate(values).mean())


def run(size: int, variant: str, seed: int) -> dict[str, Any]:
    """Train once; return the dev metrics of the best epoch and the CPU time."""
    table = recipe_table("own")
    table["data"] = DATA[size]
    table["training"] = {**table["training"], **VARIANTS[variant], "seed": seed}
    recipe = read_recipe(table)
    prepared = prepare(recipe)
    epochs = Epochs()
    start = time.process_time()
    loop = Loop(
        prepared.model,
        recipe.training,
        prepared.train,
        prepared.dev,
        callbacks=[epochs],
    )
    state = loop.run()
    assert state.best_epoch is not None
    return {
        "size": len(prepared.train),
        "variant": variant,
        "seed": seed,
        "accuracy": epochs.accuracy(),
        "best": state.best_score,
        "log_loss": epochs.log_loss[state.best_epoch],
        "epochs": state.epoch,
        "seconds": time.process_time() - start,
    }


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(DATA))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/schedules.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    if options.out.exists():
        rows = [json.loads(line) for line in options.out.read_text().splitlines()]
    for seed in range(options.seeds):
        for size in options.sizes:
            for variant in options.variants:
                key = {"size": size, "variant": variant, "seed": seed}
                if any(key.items() <= row.items() for row in rows):
                    continue
                rows.append(run(size, variant, seed))
                with options.out.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    table = Table("texts", "schedule", "dev accuracy", "log-loss", "epochs", "CPU s")
    for size in options.sizes:
        for variant in options.variants:
            cell = [r for r in rows if (r["size"], r["variant"]) == (size, variant)]
            accuracy = [100 * row["accuracy"] for row in cell]
            deviation = statistics.stdev(accuracy) if len(cell) > 1 else 0.0
            means = [
                statistics.mean(row[key] for row in cell)
                for key in ("log_loss", "epochs", "seconds")
            ]
            table.add_row(
                f"{size:,}",
                variant,
                f"{statistics.mean(accuracy):.1f} ± {deviation:.1f}",
                f"{means[0]:.3f}",
                f"{means[1]:.1f}",
                f"{means[2]:.0f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
