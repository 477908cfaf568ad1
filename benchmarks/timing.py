"""Time several ways of doing one thing so that a noisy machine is fair to all."""

import platform
import statistics
import time
from collections.abc import Callable

import torch


def interleaved_medians(
    ways: dict[str, Callable[[], object]], repeats: int, budget: float
) -> dict[str, float]:
    """Return each way's median seconds; in every round each of them has one turn.

    A quick way takes several runs a turn, so that each turn lasts some milliseconds.

    Args:
        ways: what to time.
        repeats: rounds.
        budget: seconds after which no further round begins; there are at least three.
    """
    runs = {}
    for name, way in ways.items():
        way()  # caches, compilation
        begin = time.perf_counter()
        way()
        runs[name] = max(1, int(0.005 / (time.perf_counter() - begin)))
    times: dict[str, list[float]] = {name: [] for name in ways}
    start = time.perf_counter()
    for turn in range(repeats):
        for name, way in ways.items():
            begin = time.perf_counter()
            for _ in range(runs[name]):
                way()
            times[name].append((time.perf_counter() - begin) / runs[name])
        if turn >= 2 and time.perf_counter() - start > budget:
            break
    return {name: statistics.median(values) for name, values in times.items()}


def machine() -> str:
    """Return one line about where this was measured."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            names = [
                line.split(":")[1].strip() for line in lines if "model name" in line
            ]
        model = names[0]
    except (OSError, IndexError):
        pass
    threads = torch.get_num_threads()
    return f"{model}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}"
