"""The same command in several processes, which share its work."""

import os
import subprocess
import sys
from collections.abc import Sequence

from perron.cli.console import say
from perron.errors import PerronError
from perron.training.stopping import ended_by_term

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def share_work(
    workers: int, words: Sequence[str] | None = None, module: str = "perron"
) -> None:
    """Run a command in several processes, each with its share of the cores.

    The command must skip work that another process has claimed. Two processes with one
    thread each train small models faster than one process with two threads.

    Args:
        workers: Number of processes.
        words: Arguments of the command. Defaults to those of this process, without
            ``--workers``.
        module: Module that is the command, as in ``python -m perron``.
    """
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    environment = os.environ | {name: threads for name in _THREADS}
    words = _without_workers(sys.argv[1:]) if words is None else words
    command = [sys.executable, "-m", module, *words]
    # They speak through a pipe, for lines are readable when mixed, and bars are not.
    heard, spoken = os.pipe()
    running: list[subprocess.Popen[bytes]] = []
    with ended_by_term():
        try:
            for _ in range(workers):
                running.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdout=subprocess.DEVNULL,
                        stderr=spoken,
                    )
                )
            os.close(spoken)
            with os.fdopen(heard, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    say(line.rstrip("\n"))
            failed = [process for process in running if process.wait() != 0]
        finally:  # they save what they have, which takes them a moment
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
    if failed:
        raise PerronError(
            f"{len(failed)} of {workers} processes failed; the reason is above. What "
            "is done is kept: type the same command again to go on"
        )


def _without_workers(arguments: list[str]) -> list[str]:
    kept = []
    skip = False
    for argument in arguments:
        if skip or argument.startswith("--workers="):
            skip = False
        elif argument == "--workers":
            skip = True
        else:
            kept.append(argument)
    return kept
