"""What does serving cost compared with calling the model?

This benchmark measures the throughput and latency of `/v1/predict` of `perron serve` on
the loopback interface, for 1, 8 and 64 clients that each send a request, wait for the
response and send the next one, with 1 and 16 texts per request. The clients run in a
separate process on the same machine. For comparison, the same model is called without a
server, on batches as large as those that the server formed, with all of torch's threads
and with one thread. The faster of the two is the direct throughput. All of them take
turns, and ratios are medians over the turns. The sentences are from the test set of
Rotten Tomatoes. The model is the one trained by `make demo`, or an untrained one of the
same size if it does not exist. The last four columns are the CPU use in percent of one
core: the process that calls the model directly, the server's HTTP thread, its compute
threads, and the clients.

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
    """A child process that answers each input line with a line of JSON."""

    def __init__(self, *command: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *arguments: object) -> dict:
        """Send a line and return the answer."""
        print(*arguments, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def __enter__(self) -> "Helper":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait()


class Server:
    """A running ``perron serve`` and its metrics."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "perron", "serve", folder, "--port=0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        match = re.search(r":(\d+)$", line.strip())
        if match is None:
            raise SystemExit(line + self.process.stderr.read())
        self.port = int(match[1])

    def batches(self) -> tuple[float, float]:
        """Return the numbers of texts and batches computed so far."""
        address = f"http://127.0.0.1:{self.port}/metrics"
        metrics = urllib.request.urlopen(address).read().decode()
        line = r"^perron_batch_texts_{} (\S+)$"
        values = (re.search(line.format(n), metrics, re.M)[1] for n in ("sum", "count"))
        return tuple(map(float, values))

    def cpu_seconds(self) -> tuple[float, float]:
        """Return the CPU seconds of the HTTP thread and of all other threads."""
        http = others = 0.0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            seconds = (int(fields[11]) + int(fields[12])) / TICKS
            if task.name == str(self.process.pid):
                http = seconds
            else:
                others += seconds
        return http, others

    def close(self) -> None:
        """Stop the server and check that it exits cleanly."""
        self.process.terminate()
        assert self.process.wait(60) == 0


@contextmanager
def model_folder() -> Iterator[tuple[Path, str]]:
    """Yield the folder of the demo model, or of an untrained one of its size."""
    if (DEMO / "config.json").exists():
        yield DEMO, "runs/demo"
        return
    with tempfile.TemporaryDirectory() as folder:
        overrides = ["vectors=[]", "model.embedding={embedding_dim=50}"]
        ready = prepare(read_recipe(recipe_table("demo"), overrides))
        perron.Pipeline(ready.model, ready.processor).save_pretrained(folder)
        yield Path(folder), "random weights"


def call_directly(folder: str, path: str, threads: str) -> None:
    """Read lines with a batch size and seconds; print the texts per second."""
    torch.set_num_threads(int(threads))
    model = perron.load(folder)
    endless = itertools.cycle(json.loads(Path(path).read_text()))
    for line in sys.stdin:
        size, seconds = int(line.split()[0]), float(line.split()[1])
        inputs = [list(itertools.islice(endless, size)) for _ in range(20)]
        batches = itertools.cycle(inputs)
        model.predict_proba(next(batches))
        count, begin, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - begin < seconds:
            model.predict_proba(next(batches))
            count += size
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        answer = {"rate": count / elapsed, "cpu": 100 * cpu / elapsed}
        print(json.dumps(answer), flush=True)


def measure(
    server: Server,
    load: Helper,
    direct: list[Helper],
    clients: int,
    size: int,
    seconds: float,
) -> dict:
    """Return a row with the medians over several turns."""
    load.ask(clients, size, seconds / 2)  # lets the batch size settle
    turns = []
    for _ in range(TURNS):
        texts, count, http, others = (*server.batches(), *server.cpu_seconds())
        turn = load.ask(clients, size, seconds)
        now = (*server.batches(), *server.cpu_seconds())
        turn["batch"] = (now[0] - texts) / (now[1] - count)
        turn["texts/s"] = turn["requests"] * size / turn["seconds"]
        batch = max(1, round(turn["batch"]))
        answers = [helper.ask(batch, seconds) for helper in direct]
        fastest = max(answers, key=lambda answer: answer["rate"])
        turn["direct texts/s"], turn["direct CPU"] = fastest["rate"], fastest["cpu"]
        turn["ratio"] = turn["texts/s"] / turn["direct texts/s"]
        turn["HTTP CPU"] = 100 * (now[2] - http) / turn["seconds"]
        turn["compute CPU"] = 100 * (now[3] - others) / turn["seconds"]
        turn["client CPU"] = 100 * turn.pop("cpu") / turn["seconds"]
        turns.append(turn)
    row = {"texts": size, "clients": clients}
    row |= {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    row["errors"] = sum(turn["errors"] for turn in turns)
    return row


COLUMNS = {"clients": "", "texts/s": ".0f", "p50": ".1f", "p99": ".1f", "errors": ""}
COLUMNS |= {"batch": ".1f", "direct texts/s": ".0f", "ratio": ".2f"}
CPU_COLUMNS = ["direct CPU", "HTTP CPU", "compute CPU", "client CPU"]
COLUMNS |= dict.fromkeys(CPU_COLUMNS, ".0f")


def conclusions(rows: list[dict], name: str) -> list[str]:
    """Summarize throughput and CPU time per text."""
    clients = max(row["clients"] for row in rows)
    largest = {row["texts"]: row for row in rows if row["clients"] == clients}
    lines = [
        f"model {name}, {_load(clients, size)}: {100 * row['ratio']:.0f} % of the "
        f"direct throughput, {row['errors']} errors"
        + (" (target: 70 %, no errors)" if size == 16 else "")
        for size, row in largest.items()
    ]
    for size, row in largest.items():
        served = 1e4 * (row["HTTP CPU"] + row["compute CPU"]) / row["texts/s"]
        direct = 1e4 * row["direct CPU"] / row["direct texts/s"]
        lines.append(
            f"{_load(clients, size)}: a text costs {served:.0f} µs of CPU time on the "
            f"server, compared with {direct:.0f} µs without a server"
        )
    if 1 in largest:
        row = largest[1]
        http, compute, client = (
            1e4 * row[part] / row["texts/s"] for part in CPU_COLUMNS[1:]
        )
        lines.append(
            f"with one text per request, a text costs {http:.0f} µs of CPU time for "
            f"HTTP, {compute:.0f} µs for compute and {client:.0f} µs in the client, "
            f"which limits the throughput; all {os.cpu_count()} cores together are "
            f"{_utilization(row):.0f} % busy, and the remaining time is spent waiting, "
            "most likely for Python's global interpreter lock, which HTTP and compute "
            "share"
        )
    return lines


def _load(clients: int, size: int) -> str:
    return f"{clients} clients, {size} text{'s' * (size > 1)} per request"


def _utilization(row: dict) -> float:
    return sum(row[part] for part in CPU_COLUMNS[1:]) / (os.cpu_count() or 1)


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=60)
    if report.peak:
        call_directly(*report.peak)
        return
    threads = torch.get_num_threads()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as `perron serve` sets it
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
                Helper(__file__, "--peak", model, path, threads) as all_threads,
                Helper(__file__, "--peak", model, path, 1) as one_thread,
            ):
                direct = [all_threads, one_thread]
                for helper in direct:
                    helper.ask(1, 0)  # waits for the imports
                for size in sizes:
                    rows = [
                        measure(server, load, direct, count, size, seconds)
                        for count in clients
                    ]
                    report.add(f"texts per request: {size}", rows, COLUMNS)
        finally:
            server.close()
    report.finish(conclusions(report.rows, name))


if __name__ == "__main__":
    main()
