"""How many threads should train and predict, on a quiet and on a busy machine?

This benchmark times training steps and predictions with one thread and with all
threads, first on the machine as it is, then with a busy process on each core. The
columns show times with all threads relative to one thread. Below one, more threads pay
off. CPU time includes threads that spin while they wait for others.

    GOMP_SPINCOUNT=1000 python benchmarks/threads.py [--json FILE] [--threads 2]
                                                     [--budget 60] [--quick]

GOMP_SPINCOUNT is set by the command ``perron`` unless you set it.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional as F

from perron.models import Classifier, ModelConfig, build_model
from perron.training import read_recipe, recipe_table
from perron.training.loop import make_optimizer
from timing import Report

VOCABULARY = 20_000
# Name -> recipe, texts per batch, words per text, whether it is a training step.
CASES = {
    "train own, 16 texts of 20 words": ("own", 16, 20, True),
    "train own, 16 texts of 200 words": ("own", 16, 200, True),
    "train sst2, 128 texts of 20 words": ("sst2", 128, 20, True),
    "predict own, 1 text of 20 words": ("own", 1, 20, False),
    "predict own, 64 texts of 20 words": ("own", 64, 20, False),
    "predict sst2, 64 texts of 200 words": ("sst2", 64, 200, False),
}


def make_model(recipe: str) -> tuple[Classifier, torch.optim.Optimizer]:
    """Return the model of a recipe with random weights, and its optimizer."""
    table = {"data": {"format": "rotten-tomatoes"}} | recipe_table(recipe)
    settings = read_recipe(table)
    config = ModelConfig(
        settings=settings.model, vocab_size=VOCABULARY, labels=("bad", "good")
    )
    torch.manual_seed(0)
    model = build_model(config)
    return model, make_optimizer(model, settings.training)


def make_call(recipe: str, texts: int, words: int, train: bool) -> Callable[[], None]:
    """Return a training step or a prediction on random texts."""
    model, optimizer = make_model(recipe)
    ids = torch.randint(VOCABULARY, (texts * words,))
    lengths = torch.full((texts,), words)
    labels = torch.randint(2, (texts,))
    model.train(train)

    def step() -> None:
        F.cross_entropy(model(ids, lengths=lengths).logits, labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.inference_mode()
    def predict() -> None:
        model(ids, lengths=lengths)

    return step if train else predict


@contextmanager
def busy_cores(busy: bool) -> Iterator[None]:
    """Keep every core busy with another process inside the block, or none."""
    command = [sys.executable, "-c", "while True: pass"]
    count = (os.cpu_count() or 1) if busy else 0
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(
    call: Callable[[], None], threads: int, seconds: float
) -> tuple[float, float]:
    """Return the wall and the CPU time with all threads, relative to one thread.

    The two are timed in turns, so that other programs disturb both.
    """
    times: dict[int, list[tuple[float, float]]] = {1: [], threads: []}
    for count in times:
        torch.set_num_threads(count)
        call()  # compile, start threads
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times[1]) < 3:
        for count, runs in times.items():
            torch.set_num_threads(count)
            wall, cpu, calls = time.monotonic(), time.process_time(), 0
            while time.monotonic() - wall < 0.1:
                call()
                calls += 1
            wall, cpu = time.monotonic() - wall, time.process_time() - cpu
            runs.append((wall / calls, cpu / calls))
    one, many = (
        [statistics.median(t) for t in zip(*times[n], strict=True)]
        for n in (1, threads)
    )
    return many[0] / one[0], many[1] / one[1]


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=60)
    threads = torch.get_num_threads()
    cases = dict(list(CASES.items())[:1]) if report.quick else CASES
    rows: list[dict] = []
    for name, case in cases.items():
        call = make_call(*case)
        row: dict = {"case": name}
        for state in ("quiet", "busy"):
            with busy_cores(state == "busy"):
                seconds = report.budget / len(cases) / 2
                row[f"{state}: time"], row[f"{state}: CPU"] = measure(
                    call, threads, seconds
                )
        rows.append(row)
    load = os.getloadavg()[0]
    columns = {"case": ""} | {
        f"{state}: {kind}": ".2f"
        for state in ("quiet", "busy")
        for kind in ("time", "CPU")
    }
    title = f"{threads} threads relative to one thread (load average {load:.1f})"
    report.add(title, rows, columns)
    worst = max(row["busy: time"] for row in rows)
    best = min(row["quiet: time"] for row in rows)
    report.finish(
        [
            f"{threads} threads take at best {best:.2f} times as long as one, and up "
            f"to {worst:.2f} times on a busy machine."
        ]
    )


if __name__ == "__main__":
    main()
