"""What does serving cost beside calling the model?

Texts a second and the time that a request takes, at `/v1/predict` of ``perron serve``
on loopback, for 1, 8 and 64 clients that ask, wait and ask again, with 1 and with 16
texts a request. Clients are a process of their own and share the machine. Beside it the
same model without a server, with batches as large as those that the server formed:
called with all threads that torch would use, and with one. The faster of both is what
the server is compared with. All take turns, and ratios are medians of turns. Sentences
are those of Rotten Tomatoes' test set, the model is that of `make demo`, or one of its
size with random weights if there is none. The last columns are how busy they were, in
per cent of a core: the process without a server, the server's thread for HTTP, its
threads that compute, and who asks.

    python benchmarks/serve.py [--json FILE] [--threads 2] [--budget 60] [--quick]
"""

import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import perron
from perron.text.datasets import load_split
from perron.text.settings import DataSettings
from perron.training import read_recipe, recipe_table
from perron.training.prepare import prepare
from timing import Report

HERE = Path(__file__).parent
DEMO = HERE.parent / "runs" / "demo"
CLIENTS, SIZES = [1, 8, 64], [1, 16]
TURNS = 5
TICKS = os.sysconf("SC_CLK_TCK")


class Helper:
    """A process that answers lines with JSON."""

    def __init__(self, *command: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words: object) -> dict:
        """Send a line and return the answer."""
        print(*words, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def __enter__(self) -> "Helper":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait()


class Server:
    """``perron serve`` and what can be seen of it from outside."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "perron", "serve", folder, "--port=0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        told = self.process.stderr.readline()
        found = re.search(r":(\d+)$", told.strip())
        if found is None:
            raise SystemExit(told + self.process.stderr.read())
        self.port = int(found[1])

    def batches(self) -> tuple[float, float]:
        """Return how many texts were computed so far, in how many batches."""
        address = f"http://127.0.0.1:{self.port}/metrics"
        told = urllib.request.urlopen(address).read().decode()
        read = r"^perron_batch_texts_{} (\S+)$"
        numbers = (re.search(read.format(n), told, re.M)[1] for n in ("sum", "count"))
        return tuple(map(float, numbers))

    def busy(self) -> tuple[float, float]:
        """Return the CPU seconds of the thread for HTTP, and of all others."""
        own = others = 0.0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            seconds = (int(fields[11]) + int(fields[12])) / TICKS
            if task.name == str(self.process.pid):
                own = seconds
            else:
                others += seconds
        return own, others

    def close(self) -> None:
        """Stop it; that this works is part of the measurement."""
        self.process.terminate()
        assert self.process.wait(60) == 0


@contextmanager
def model_folder() -> Iterator[tuple[Path, str]]:
    """Give the demo's model, or one like it that has learnt nothing."""
    if (DEMO / "config.json").exists():
        yield DEMO, "runs/demo"
        return
    with tempfile.TemporaryDirectory() as folder:
        overrides = ["vectors=[]", "model.embedding={dim=50}"]
        ready = prepare(read_recipe(recipe_table("demo"), overrides))
        perron.Pipeline(ready.model, ready.word_ids).save_pretrained(folder)
        yield Path(folder), "random weights"


def call_directly(folder: str, path: str, threads: str) -> None:
    """Answer lines, each with a size of batches and seconds, with texts a second."""
    torch.set_num_threads(int(threads))
    model = perron.load(folder)
    endless = itertools.cycle(json.loads(Path(path).read_text()))
    for line in sys.stdin:
        size, seconds = int(line.split()[0]), float(line.split()[1])
        made = [list(itertools.islice(endless, size)) for _ in range(20)]
        batches = itertools.cycle(made)
        model.predict_proba(next(batches))
        count, begin, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - begin < seconds:
            model.predict_proba(next(batches))
            count += size
        taken, cpu = time.perf_counter() - begin, time.process_time() - cpu
        answer = {"rate": count / taken, "busy": 100 * cpu / taken}
        print(json.dumps(answer), flush=True)


def measure(
    server: Server,
    load: Helper,
    direct: list[Helper],
    clients: int,
    size: int,
    seconds: float,
) -> dict:
    """Return a row: the medians of some turns."""
    load.ask(clients, size, seconds / 2)  # settles how large batches are
    turns = []
    for _ in range(TURNS):
        texts, count, own, others = (*server.batches(), *server.busy())
        turn = load.ask(clients, size, seconds)
        now = (*server.batches(), *server.busy())
        turn["batch"] = (now[0] - texts) / (now[1] - count)
        turn["texts/s"] = turn["requests"] * size / turn["seconds"]
        batch = max(1, round(turn["batch"]))
        ways = [helper.ask(batch, seconds) for helper in direct]
        alone = max(ways, key=lambda way: way["rate"])
        turn["direct"], turn["alone"] = alone["rate"], alone["busy"]
        turn["ratio"] = turn["texts/s"] / turn["direct"]
        turn["HTTP"] = 100 * (now[2] - own) / turn["seconds"]
        turn["compute"] = 100 * (now[3] - others) / turn["seconds"]
        turn["asking"] = 100 * turn.pop("cpu") / turn["seconds"]
        turns.append(turn)
    row = {"texts": size, "clients": clients}
    row |= {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    row["errors"] = sum(turn["errors"] for turn in turns)
    return row


COLUMNS = {"clients": "", "texts/s": ".0f", "p50": ".1f", "p99": ".1f", "errors": ""}
COLUMNS |= {"batch": ".1f", "direct": ".0f", "ratio": ".2f"}
COLUMNS |= {"alone": ".0f", "HTTP": ".0f", "compute": ".0f", "asking": ".0f"}


def conclusions(rows: list[dict], name: str) -> list[str]:
    """Return what the question comes down to."""
    most = max(row["clients"] for row in rows)
    last = {row["texts"]: row for row in rows if row["clients"] == most}
    lines = [
        f"model: {name}; {most} clients with {size} texts a request: "
        f"{100 * row['ratio']:.0f} % of the direct throughput, {row['errors']} errors"
        + (" (asked: 70 %, none)" if size == 16 else "")
        for size, row in last.items()
    ]
    for size, row in last.items():
        served = 1e4 * (row["HTTP"] + row["compute"]) / row["texts/s"]
        alone = 1e4 * row["alone"] / row["direct"]
        lines.append(
            f"{most} clients with {size} texts a request: a text costs the server "
            f"{served:.0f} µs of a core, and {alone:.0f} µs without one"
        )
    if 1 in last:
        row = last[1]
        each = {
            part: 1e4 * row[part] / row["texts/s"]
            for part in ("HTTP", "compute", "asking")
        }
        lines.append(
            "with one text a request, each costs "
            + ", ".join(f"{cost:.0f} µs ({part})" for part, cost in each.items())
            + f": these bound it; all {os.cpu_count()} cores together are "
            f"{_busy(row):.0f} % busy, and what is left is waiting, most likely for "
            "Python's lock, which HTTP and compute share"
        )
    return lines


def _busy(row: dict) -> float:
    parts = row["HTTP"] + row["compute"] + row["asking"]
    return parts / (os.cpu_count() or 1)


def main() -> None:
    """Measure and print."""
    report = Report(__doc__, budget=60)
    if report.peak:
        call_directly(*report.peak)
        return
    threads = torch.get_num_threads()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the command has it
    clients = [8] if report.quick else CLIENTS
    sizes = [16] if report.quick else SIZES
    seconds = report.budget / len(clients) / (3 * TURNS + 1)
    with tempfile.TemporaryDirectory() as folder, model_folder() as (model, name):
        path = Path(folder, "texts.json")
        labels = perron.load(model).labels
        data = DataSettings(format="rotten-tomatoes")
        path.write_text(json.dumps(load_split(data, "test", labels).rows["text"][:]))
        server = Server(model)
        try:
            with (
                Helper(HERE / "clients.py", server.port, path) as load,
                Helper(__file__, "--peak", model, path, threads) as with_all,
                Helper(__file__, "--peak", model, path, 1) as with_one,
            ):
                direct = [with_all, with_one]
                for helper in direct:
                    helper.ask(1, 0)  # imports
                for size in sizes:
                    rows = [
                        measure(server, load, direct, count, size, seconds)
                        for count in clients
                    ]
                    report.add(f"{size} texts a request", rows, COLUMNS)
        finally:
            server.close()
    report.finish(conclusions(report.rows, name))


if __name__ == "__main__":
    main()
