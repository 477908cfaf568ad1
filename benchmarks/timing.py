"""Time several ways of doing one thing so that a noisy machine is fair to all."""

import argparse
import json
import platform
import statistics
import subprocess
import sys
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


def peak_megabytes(script: str, *case: object) -> float:
    """Return what ``script --peak *case`` needs at most, in a process of its own."""
    command = [sys.executable, script, "--peak", *map(str, case)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def print_peak(run: Callable[[], object]) -> None:
    """Print by how many megabytes a run raises this process's peak (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _kilobytes("VmRSS")
    run()
    print((_kilobytes("VmHWM") - before) / 1000)


def _kilobytes(field: str) -> int:
    """Return what the kernel says of this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


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
        parser.add_argument("--peak", nargs="+", help=argparse.SUPPRESS)
        options = parser.parse_args()
        torch.set_num_threads(options.threads)
        self.json: Path | None = options.json
        self.budget: float = options.budget
        self.quick: bool = options.quick
        self.peak: list[str] | None = options.peak  # what `peak_megabytes` asks for
        self.console = Console()
        self.rows: list[dict] = []

    def add(self, title: str, rows: list[dict], columns: dict[str, str]) -> None:
        """Print a table and keep its numbers.

        Args:
            title: of the table.
            rows: what was measured.
            columns: which fields to show, and the format of each.
        """
        table = Table(*columns, title=title)
        for row in rows:
            shown = [
                format(row[field], style) if field in row else "-"
                for field, style in columns.items()
            ]
            table.add_row(*shown)
        if not self.rows:
            self.console.print(machine())
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
            self.json.parent.mkdir(parents=True, exist_ok=True)
            self.json.write_text(json.dumps(content, indent=1))
