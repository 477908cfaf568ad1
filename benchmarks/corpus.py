"""Do two workers process a corpus with every row exactly once and constant memory?

Texts as long as SST's sentences, 19 words on average, are sampled from the model's
vocabulary and streamed to Parquet files, each with an id. Two workers of ``--engine
ray`` label them, while the memory of this process and of each worker is sampled.
Afterward, the rows are counted and the ids are checked (each once, in order).
Order-independent checksums are compared: of ids and texts before and after the run, and
of ids and labels. A thousand rows are recomputed in this process. The model is the one
trained by `make demo`, or an untrained one of the same size if it does not exist.

    python benchmarks/corpus.py [--texts 1000000] [--workers 2] [--json FILE] [--quick]
"""

import argparse
import hashlib
import json
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import perron
from perron.integrations.corpora import TextMapper
from perron.integrations.corpora.ray_engine import CorpusProgress, run_on_ray
from serve import model_folder
from timing import machine

MEAN_WORDS = 19
FILE_ROWS, CHUNK = 250_000, 10_000
SAMPLE = 1000


def batches(words: list[str], texts: int) -> Iterator[pa.Table]:
    """Yield ids and texts in small tables, the same in every run."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, len(words) + 1)  # Zipf's law
    frequency /= frequency.sum()
    for begin in range(0, texts, CHUNK):
        ids = range(begin, min(texts, begin + CHUNK))
        extra = rng.negative_binomial(4, 4 / (3 + MEAN_WORDS), len(ids))
        lengths = np.minimum(1 + extra, 60)
        indices = rng.choice(len(words), lengths.sum(), p=frequency)
        rows = np.split(indices, lengths.cumsum()[:-1])
        sampled = [" ".join(words[index] for index in row) for row in rows]
        yield pa.table({"id": pa.array(ids, pa.int64()), "text": sampled})


def write_corpus(folder: Path, words: list[str], texts: int) -> float:
    """Write the files and return the mean number of words per text."""
    count, written, writer = 0, 0, None
    for table in batches(words, texts):
        if written % FILE_ROWS == 0:
            if writer is not None:
                writer.close()
            path = folder / f"texts-{written // FILE_ROWS:03d}.parquet"
            writer = pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        written += len(table)
        count += sum(text.count(" ") + 1 for text in table["text"].to_pylist())
    writer.close()
    return count / texts


class Memory(threading.Thread):
    """A thread that samples the resident memory of this process and the workers."""

    def __init__(self, interval: float) -> None:
        super().__init__(daemon=True)
        self.interval = interval
        self.workers: set[int] = set()
        self.samples: dict[str, list[float]] = {}
        self.stop = threading.Event()
        self.start_point: tuple[float, int] | None = None  # time and rows
        self.speed = 0.0  # rows per second since the first part was done

    def watch(self, progress: CorpusProgress) -> None:
        """Record the workers and their speed, once the first part is done."""
        self.workers.add(int(progress.process.rpartition("/")[2]))
        if self.start_point is None:
            self.start_point = time.monotonic(), progress.rows
        else:
            seconds = time.monotonic() - self.start_point[0]
            self.speed = (progress.rows - self.start_point[1]) / seconds

    def run(self) -> None:
        """Sample until stopped."""
        while not self.stop.wait(self.interval):
            if self.start_point is None:
                continue
            self._sample("this process", os.getpid())
            for number, worker in enumerate(sorted(self.workers), 1):
                self._sample(f"worker {number}", worker)

    def _sample(self, name: str, process: int) -> None:
        try:
            resident = psutil.Process(process).memory_info().rss
        except psutil.NoSuchProcess:
            return
        self.samples.setdefault(name, []).append(resident / 1e6)

    def rows(self) -> list[dict]:
        """Return the medians of the first and the last third, in megabytes."""
        rows = []
        for name, values in self.samples.items():
            third = max(1, len(values) // 3)
            first, last = map(statistics.median, (values[:third], values[-third:]))
            rows.append(
                {
                    "process": name,
                    "first third": first,
                    "last third": last,
                    "maximum": max(values),
                    "ratio": last / first,
                    "samples": len(values),
                }
            )
        return rows


def read(folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all files, sorted by file name."""
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(CHUNK)


def checksum(batch: pa.RecordBatch, column: str) -> int:
    """Return a checksum of the ids and a column, independent of the row order."""
    rows = zip(batch["id"].to_pylist(), batch[column].to_pylist(), strict=True)
    hashes = (hashlib.sha256(f"{number} {value}".encode()) for number, value in rows)
    return sum(int.from_bytes(each.digest()[:8]) for each in hashes)


def check(corpus: Path, out: Path, model: Path, texts: int) -> dict:
    """Count rows, check ids and checksums, and recompute some rows."""
    sample = set(random.Random(0).sample(range(texts), min(SAMPLE, texts)))
    rows, in_order, sums, sampled = 0, True, {"text": 0, "label": 0}, []
    for batch in read(out):
        ids = batch["id"].to_pylist()
        in_order &= ids == list(range(rows, rows + len(ids)))
        rows += len(ids)
        for column in sums:
            sums[column] += checksum(batch, column)
        sampled += [row for row in batch.to_pylist() if row["id"] in sample]
    before = sum(checksum(batch, "text") for batch in read(corpus))
    expected = perron.load(model).predict_proba([row["text"] for row in sampled])
    actual = np.array([list(row["probabilities"].values()) for row in sampled])
    return {
        "rows in": texts,
        "rows out": rows,
        "each id once, in order": bool(in_order and rows == texts),
        "texts unchanged": sums["text"] == before,
        "checksum": f"{sums['label'] % 2**64:016x}",
        "rows recomputed": len(sampled),
        "largest difference": float(abs(actual - expected).max()),
    }


def show(console: Console, title: str, rows: list[dict]) -> None:
    """Print a table, with a single row as a column."""
    pairs = list(rows[0].items()) if len(rows) == 1 else None
    table = Table(*(["", ""] if pairs else rows[0]), title=title)
    for row in pairs or [row.values() for row in rows]:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row))
    console.print(table)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    parser.add_argument("--quick", action="store_true", help="5000 texts")
    options = parser.parse_args()
    texts = 5000 if options.quick else options.texts
    console = Console()
    with tempfile.TemporaryDirectory() as folder, model_folder() as (model, name):
        corpus, out = Path(folder, "corpus"), Path(folder, "out")
        corpus.mkdir()
        words = [w for w in perron.load(model).processor.tokenizer.words if w.isalpha()]
        mean = write_corpus(corpus, words, texts)
        memory = Memory(0.1 if texts < 100_000 else 1.0)
        memory.start()
        begin = time.monotonic()
        result = run_on_ray(
            TextMapper(model),
            corpus,
            out,
            workers=options.workers,
            on_progress=memory.watch,
        )
        seconds = time.monotonic() - begin
        memory.stop.set()
        memory.join()
        checked = check(corpus, out, model, texts)
        size = {
            "bytes in": sum(path.stat().st_size for path in corpus.iterdir()),
            "bytes out": sum(path.stat().st_size for path in out.glob("part-*")),
        }
    speed = texts / seconds
    run = {"texts": texts, "words per text": mean, "workers": options.workers}
    run |= {"parts": result.shards, "seconds": seconds, "rows/s": speed}
    run |= {"rows/s after the first part": memory.speed}
    run |= {"rows/s per worker": memory.speed / options.workers} | size
    console.print(machine(), f"model: {name}", sep="\n")
    show(console, "run; seconds include starting Ray and the workers", [run])
    show(console, "memory in MB", memory.rows())
    show(console, "rows", [checked])
    conclusions = [
        f"{checked['rows out']} of {texts} rows, each once: "
        f"{checked['each id once, in order']}; checksum {checked['checksum']}",
        f"{memory.speed:.0f} rows per second with {options.workers} workers; memory in "
        "the last third of the run is at most "
        f"{max(row['ratio'] for row in memory.rows()):.2f} times that in the first",
    ]
    for line in conclusions:
        console.print(line)
    if options.json:
        content = {"machine": machine(), "model": name, "run": run}
        content |= {"memory": memory.rows(), "rows": checked}
        content |= {"conclusions": conclusions}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(content, indent=1))
    if not (checked["each id once, in order"] and checked["texts unchanged"]):
        raise SystemExit("Rows were lost, duplicated, changed or reordered.")


if __name__ == "__main__":
    main()
