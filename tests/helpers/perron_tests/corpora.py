"""Small corpora of Parquet files, a model for them, and a check of the results."""

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
    """Write one file per entry of ``sizes``, with consecutive ids across files."""
    rng = np.random.default_rng(0)
    start = 0
    for name, rows in sizes.items():
        words = [rng.choice(WORDS[1:], rng.integers(0, 12)) for _ in range(rows)]
        table = pa.table(
            {
                "id": pa.array(range(start, start + rows), pa.int64()),
                "text": pa.array([" ".join(text) for text in words], pa.string()),
            }
        )
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=row_group)
        start += rows
    return folder


def check_result(out: Path, model: Path, count: int, missing: tuple[int, ...] = ()):
    """Check that each row is present once, in order, with the expected results."""
    table = pq.read_table(out)
    expected = [number for number in range(count) if number not in missing]
    assert table["id"].to_pylist() == expected
    pipeline = perron.load(model)
    texts = table["text"].to_pylist()
    probabilities = np.array(
        [list(row.values()) for row in table["probabilities"].to_pylist()]
    )
    np.testing.assert_allclose(probabilities, pipeline.predict_proba(texts), atol=1e-5)
    labels = [pipeline.labels[best] for best in probabilities.argmax(1)]
    assert table["label"].to_pylist() == labels
