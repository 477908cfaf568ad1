"""Time several ways of doing one thing so that a noisy machine is fair to all."""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

_TURN = 0.02  # seconds: long enough for caches to be warm most of the time


def interleaved_medians(
    ways: dict[str, Callable[[], object]], repeats: int, budget: float
) -> dict[str, float]:
    """Return each way's median seconds; in every round each of them has one turn.

    A quick way takes several runs a turn, so that each turn lasts some milliseconds. A
    slow one leaves early, so that the others still have all their turns.

    Args:
        ways: what to time.
        repeats: rounds.
        budget: seconds for all; a way that has used up its share of them takes no
            further turn, but each has at least three.
    """
    runs = {}
    for name, way in ways.items():
        way()  # caches, compilation
        runs[name] = max(1, int(_TURN / min(_seconds(way) for _ in range(3))))
    times: dict[str, list[float]] = {name: [] for name in ways}
    spent = dict.fromkeys(ways, 0.0)
    for turn in range(repeats):
        for name, way in ways.items():
            if turn < 3 or spent[name] < budget / len(ways):
                taken = _seconds(way, runs[name])
                spent[name] += taken
                times[name].append(taken / runs[name])
    return {name: statistics.median(values) for name, values in times.items()}


def _seconds(way: Callable[[], object], runs: int = 1) -> float:
    begin = time.perf_counter()
    for _ in range(runs):
        way()
    return time.perf_counter() - begin


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


class Report:
    """The command line and the output that all benchmarks share."""

    def __init__(self, doc: str, budget: float, threads: int | None = None) -> None:
        """Read the command line.

        Args:
            doc: the script's own description; its first line is the help's.
            budget: seconds for a table, if the caller does not say.
            threads: of torch, likewise; torch's own choice if not given.
        """
        threads = threads or torch.get_num_threads()
        parser = argparse.ArgumentParser(description=doc.split("\n")[0])
        parser.add_argument("--json", type=Path, help="write every number to this file")
        parser.add_argument("--threads", type=int, default=threads)
        parser.add_argument(
            "--budget", type=float, default=budget, help="seconds a table"
        )
        parser.add_argument(
            "--quick", action="store_true", help="the smallest case only"
        )
        options = parser.parse_args()
        torch.set_num_threads(options.threads)
        self.json: Path | None = options.json
        self.budget: float = options.budget
        self.quick: bool = options.quick
        self.console = Console()
        self.console.print(machine())
        self.rows: list[dict] = []

    def add(self, table: Table, rows: list[dict]) -> None:
        """Print a table and keep its numbers."""
        self.console.print(table)
        self.rows += rows

    def finish(self, conclusions: list[str]) -> None:
        """Print what it comes down to, and write the file that was asked for."""
        for line in conclusions:
            self.console.print(line)
        if self.json:
            content = {
                "machine": machine(),
                "rows": self.rows,
                "conclusions": conclusions,
            }
            self.json.write_text(json.dumps(content, indent=1))
