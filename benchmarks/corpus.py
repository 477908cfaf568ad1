"""Does a corpus go through two workers with every row once and memory flat?

Texts of the length that SST's sentences have, 19 words in the mean, are drawn from the
model's vocabulary and streamed to Parquet files with an id each. Two workers of
``--engine ray`` label them. Meanwhile the memory of this process and of each worker is
sampled. In the end rows are counted, ids compared (each once, and in order), and
checksums taken that do not depend on order: of ids and texts, before and after, and of
ids and labels. A thousand rows are computed again in this process. The model is that of
`make demo`, or one of its size with random weights if there is none.

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
from perron.integrations.corpora.parts import CorpusProgress
from perron.integrations.corpora.ray_engine import run_on_ray
from serve import model_folder
from timing import machine

MEAN_WORDS = 19
FILE_ROWS, CHUNK = 250_000, 10_000
SAMPLE = 1000


def batches(words: list[str], texts: int) -> Iterator[pa.Table]:
    """Yield ids and texts, the same every time, never many at once."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, len(words) + 1)  # as Zipf has it
    frequency /= frequency.sum()
    for begin in range(0, texts, CHUNK):
        ids = range(begin, min(texts, begin + CHUNK))
        more = rng.negative_binomial(4, 4 / (3 + MEAN_WORDS), len(ids))
        lengths = np.minimum(1 + more, 60)
        drawn = rng.choice(len(words), lengths.sum(), p=frequency)
        parts = np.split(drawn, lengths.cumsum()[:-1])
        made = [" ".join(words[word] for word in part) for part in parts]
        yield pa.table({"id": pa.array(ids, pa.int64()), "text": made})


def write_corpus(folder: Path, words: list[str], texts: int) -> float:
    """Write the files; return how many words a text has in the mean."""
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
    """Samples the resident memory of this process and of the workers."""

    def __init__(self, every: float) -> None:
        super().__init__(daemon=True)
        self.every = every
        self.workers: set[int] = set()
        self.samples: dict[str, list[float]] = {}
        self.over = threading.Event()
        self.began: tuple[float, int] | None = None
        self.speed = 0.0  # rows a second since the first piece was done

    def watch(self, progress: CorpusProgress) -> None:
        """Note who works and how fast, from when the first piece is done."""
        self.workers.add(int(progress.process.rpartition("/")[2]))
        if self.began is None:
            self.began = time.monotonic(), progress.rows
        else:
            seconds = time.monotonic() - self.began[0]
            self.speed = (progress.rows - self.began[1]) / seconds

    def run(self) -> None:
        """Sample until it is over."""
        while not self.over.wait(self.every):
            if self.began is None:
                continue
            self._sample("this process", os.getpid())
            for place, worker in enumerate(sorted(self.workers)):
                self._sample(f"worker {place + 1}", worker)

    def _sample(self, name: str, process: int) -> None:
        try:
            bytes_ = psutil.Process(process).memory_info().rss
        except psutil.NoSuchProcess:
            return
        self.samples.setdefault(name, []).append(bytes_ / 1e6)

    def rows(self) -> list[dict]:
        """Return the medians of the first and of the last third, in megabytes."""
        found = []
        for name, values in self.samples.items():
            third = max(1, len(values) // 3)
            first, last = map(statistics.median, (values[:third], values[-third:]))
            found.append(
                {
                    "process": name,
                    "first third": first,
                    "last third": last,
                    "most": max(values),
                    "ratio": last / first,
                    "samples": len(values),
                }
            )
        return found


def read(folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all files in the order of their names."""
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(CHUNK)


def checksum(batch: pa.RecordBatch, column: str) -> int:
    """Return a number for the ids with a column, whatever the order of rows."""
    rows = zip(batch["id"].to_pylist(), batch[column].to_pylist(), strict=True)
    told = (hashlib.sha256(f"{number} {value}".encode()) for number, value in rows)
    return sum(int.from_bytes(each.digest()[:8]) for each in told)


def check(corpus: Path, out: Path, model: Path, texts: int) -> dict:
    """Count, compare ids, take checksums and compute some rows again."""
    chosen = set(random.Random(0).sample(range(texts), min(SAMPLE, texts)))
    rows, in_order, sums, again = 0, True, {"text": 0, "label": 0}, []
    for batch in read(out):
        ids = batch["id"].to_pylist()
        in_order &= ids == list(range(rows, rows + len(ids)))
        rows += len(ids)
        for column in sums:
            sums[column] += checksum(batch, column)
        again += [row for row in batch.to_pylist() if row["id"] in chosen]
    before = sum(checksum(batch, "text") for batch in read(corpus))
    want = perron.load(model).predict_proba([row["text"] for row in again])
    got = np.array([list(row["probabilities"].values()) for row in again])
    return {
        "rows in": texts,
        "rows out": rows,
        "each id once, in order": bool(in_order and rows == texts),
        "texts as they were": sums["text"] == before,
        "checksum": f"{sums['label'] % 2**64:016x}",
        "computed again": len(again),
        "largest difference": float(abs(got - want).max()),
    }


def show(console: Console, title: str, rows: list[dict]) -> None:
    """Print a table; a single row is printed as a column."""
    listed = list(rows[0].items()) if len(rows) == 1 else None
    table = Table(*(["", ""] if listed else rows[0]), title=title)
    for row in listed or [row.values() for row in rows]:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row))
    console.print(table)


def main() -> None:
    """Write, run, check and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write every number to this file")
    parser.add_argument("--quick", action="store_true", help="5000 texts")
    options = parser.parse_args()
    texts = 5000 if options.quick else options.texts
    console = Console()
    with tempfile.TemporaryDirectory() as folder, model_folder() as (model, name):
        corpus, out = Path(folder, "corpus"), Path(folder, "out")
        corpus.mkdir()
        words = [w for w in perron.load(model).word_ids.tokenizer.words if w.isalpha()]
        mean = write_corpus(corpus, words, texts)
        memory = Memory(0.1 if texts < 100_000 else 1.0)
        memory.start()
        begin = time.monotonic()
        outcome = run_on_ray(
            TextMapper(model),
            corpus,
            out,
            workers=options.workers,
            watch=memory.watch,
        )
        seconds = time.monotonic() - begin
        memory.over.set()
        memory.join()
        checked = check(corpus, out, model, texts)
        size = {
            "bytes in": sum(path.stat().st_size for path in corpus.iterdir()),
            "bytes out": sum(path.stat().st_size for path in out.glob("part-*")),
        }
    speed = texts / seconds
    run = {"texts": texts, "words a text": mean, "workers": options.workers}
    run |= {"parts": outcome.pieces, "seconds": seconds, "rows/s": speed}
    run |= {"rows/s after the first piece": memory.speed}
    run |= {"of these, each worker": memory.speed / options.workers} | size
    console.print(machine(), f"model: {name}", sep="\n")
    show(console, "the run; seconds include the start of Ray and of workers", [run])
    show(console, "memory, in MB", memory.rows())
    show(console, "rows", [checked])
    conclusions = [
        f"{checked['rows out']} of {texts} rows, each once: "
        f"{checked['each id once, in order']}; checksum {checked['checksum']}",
        f"{memory.speed:.0f} rows a second with {options.workers} workers; memory of "
        "the last third is at most "
        f"{max(row['ratio'] for row in memory.rows()):.2f} times that of the first",
    ]
    for line in conclusions:
        console.print(line)
    if options.json:
        content = {"machine": machine(), "model": name, "run": run}
        content |= {"memory": memory.rows(), "rows": checked}
        content |= {"conclusions": conclusions}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(content, indent=1))
    if not (checked["each id once, in order"] and checked["texts as they were"]):
        raise SystemExit("rows were lost, doubled, changed or out of order")


if __name__ == "__main__":
    main()
