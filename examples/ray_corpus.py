"""Label a folder of Parquet files with two workers, stop halfway, and resume.

    python examples/demo.py        # trains a model
    python examples/ray_corpus.py

The same from the command line:

    perron predict runs/demo --engine ray --file runs/corpus --out runs/labels
"""

import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from perron.integrations.corpora import TextMapper
from perron.integrations.corpora.ray_engine import CorpusProgress, run_on_ray

MODEL = Path("runs/demo")
CORPUS, LABELS = Path("runs/corpus"), Path("runs/labels")
BEGINNINGS = ["a gorgeous film", "a dull film", "what a waste", "it was not bad"]
ENDINGS = ["with a fine cast .", "that felt too long .", "and I laughed .", "."]


def write_corpus() -> int:
    """Write three files of different sizes and return the total number of rows."""
    shutil.rmtree(CORPUS, ignore_errors=True)
    shutil.rmtree(LABELS, ignore_errors=True)
    CORPUS.mkdir(parents=True)
    texts = [f"{first} {last}" for first in BEGINNINGS for last in ENDINGS] * 250
    for name, begin, end in (("a", 0, 1500), ("b", 1500, 1700), ("c", 1700, 4000)):
        table = pa.table({"id": range(begin, end), "text": texts[begin:end]})
        pq.write_table(table, CORPUS / f"{name}.parquet")
    return len(texts)


def stop_halfway(progress: CorpusProgress) -> None:
    """Print the progress and simulate Ctrl+C after half of the shards."""
    done, total = progress.shards_done, progress.total_shards
    print(f"{done} of {total} shards, {progress.rows} rows")
    if done >= total // 2:
        raise KeyboardInterrupt


def main() -> None:
    """Compute half of the labels, resume, and check the result."""
    if not (MODEL / "config.json").exists():
        sys.exit(f"error: {MODEL} contains no model. Run examples/demo.py first.")
    rows = write_corpus()
    mapper = TextMapper(MODEL)
    try:
        run_on_ray(mapper, CORPUS, LABELS, workers=2, on_progress=stop_halfway)
    except KeyboardInterrupt:
        print("stopped")
    result = run_on_ray(mapper, CORPUS, LABELS, workers=2)
    print(
        f"{result.rows} rows; the second run computed {result.computed_shards} of "
        f"{result.shards} shards"
    )
    table = pq.read_table(LABELS)
    print("every row once, in order:", table["id"].to_pylist() == list(range(rows)))
    print(table.group_by("label").aggregate([("id", "count")]).to_pylist())


if __name__ == "__main__":
    main()
