"""Small corpora as Parquet files, a model for them, and what comes of them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import perron
from perron_tests.pipelines import WORDS, small_pipeline


def save_model(folder: Path) -> Path:
    small_pipeline("text").save_pretrained(folder)
    return folder


def write_corpus(folder: Path, sizes: dict[str, int], row_group: int = 700) -> Path:
    """Write a file for each size; ids count through all of them."""
    rng = np.random.default_rng(0)
    begin = 0
    for name, rows in sizes.items():
        words = [rng.choice(WORDS[1:], rng.integers(0, 12)) for _ in range(rows)]
        table = pa.table(
            {
                "id": pa.array(range(begin, begin + rows), pa.int64()),
                "text": pa.array([" ".join(text) for text in words], pa.string()),
            }
        )
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=row_group)
        begin += rows
    return folder


def check_result(out: Path, model: Path, count: int, missing: tuple[int, ...] = ()):
    """Every row once, in the order of the corpus, with what one process computes."""
    table = pq.read_table(out)
    want = [number for number in range(count) if number not in missing]
    assert table["id"].to_pylist() == want
    pipeline = perron.load(model)
    texts = table["text"].to_pylist()
    shares = np.array(
        [list(row.values()) for row in table["probabilities"].to_pylist()]
    )
    np.testing.assert_allclose(shares, pipeline.predict_proba(texts), atol=1e-5)
    labels = [pipeline.labels[best] for best in shares.argmax(1)]
    assert table["label"].to_pylist() == labels
