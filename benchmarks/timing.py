"""Timing, memory measurement and reports shared by the benchmarks."""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from perron.kernels import wait_for_compiled

_TURN_SECONDS = 0.02  # long enough for the caches to be warm most of the time


def interleaved_medians(
    calls: dict[str, Callable[[], object]], repeats: int, budget: float
) -> dict[str, float]:
    """Return the median seconds of each call, timed in turns.

    Interleaving the calls makes the comparison fair on a noisy machine. A fast call is
    repeated within a turn until the turn lasts some milliseconds. A slow call stops
    early, which leaves time for the turns of the others.

    Args:
        calls: Functions to time, by name.
        repeats: Number of turns of each call.
        budget: Seconds for all calls together. A call that has used its share of the
            budget has no further turns, but each has at least three.
    """
    runs = {}
    for name, call in calls.items():
        call()  # warm caches, compile
        runs[name] = max(1, int(_TURN_SECONDS / min(_seconds(call) for _ in range(3))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    spent = dict.fromkeys(calls, 0.0)
    for turn in range(repeats):
        for name, call in calls.items():
            if turn < 3 or spent[name] < budget / len(calls):
                elapsed = _seconds(call, runs[name])
                spent[name] += elapsed
                times[name].append(elapsed / runs[name])
    return {name: statistics.median(values) for name, values in times.items()}


def _seconds(call: Callable[[], object], runs: int = 1) -> float:
    begin = time.perf_counter()
    for _ in range(runs):
        call()
    return time.perf_counter() - begin


def machine() -> str:
    """Return one line that describes the machine."""
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
    """Return the peak memory of ``script --peak *case`` in a separate process."""
    command = [sys.executable, script, "--peak", *map(str, case)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def print_peak(run: Callable[[], object]) -> None:
    """Print the megabytes by which a run raises this process's peak (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _kilobytes("VmRSS")
    run()
    print((_kilobytes("VmHWM") - before) / 1000)


def _kilobytes(field: str) -> int:
    """Return a field of this process's memory statistics."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


class Report:
    """Command line and output shared by all benchmarks."""

    def __init__(
        self,
        doc: str,
        budget: float,
        threads: int | None = None,
        options: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        """Parse the command line.

        Args:
            doc: Docstring of the script; its first line is shown by --help.
            budget: Default of --budget, in seconds per table.
            threads: Default of --threads. Defaults to torch's number of threads.
            options: Arguments of `add_argument` for each option of the benchmark.
        """
        threads = threads or torch.get_num_threads()
        parser = argparse.ArgumentParser(description=doc.split("\n")[0])
        parser.add_argument(
            "--json", type=Path, help="write all measurements to this file"
        )
        parser.add_argument("--threads", type=int, default=threads)
        parser.add_argument(
            "--budget", type=float, default=budget, help="seconds per table"
        )
        parser.add_argument(
            "--quick", action="store_true", help="run only the smallest case"
        )
        parser.add_argument("--peak", nargs="+", help=argparse.SUPPRESS)
        for name, settings in (options or {}).items():
            parser.add_argument(name, **settings)
        self.options = parser.parse_args()
        torch.set_num_threads(self.options.threads)
        wait_for_compiled()  # so that every call is timed with the same kernels
        self.json: Path | None = self.options.json
        self.budget: float = self.options.budget
        self.quick: bool = self.options.quick
        self.peak: list[str] | None = self.options.peak  # case of `peak_megabytes`
        self.console = Console()
        self.rows: list[dict] = []

    def add(self, title: str, rows: list[dict], columns: dict[str, str]) -> None:
        """Print a table and store its rows.

        Args:
            title: Title of the table.
            rows: Measurements.
            columns: Fields to show and their formats.
        """
        table = Table(*columns, title=title)
        for row in rows:
            cells = [
                format(row[field], style) if field in row else "-"
                for field, style in columns.items()
            ]
            table.add_row(*cells)
        if not self.rows:
            self.console.print(machine())
        self.console.print(table)
        self.rows += rows

    def finish(self, conclusions: list[str]) -> None:
        """Print the conclusions and write the --json file, if any."""
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
