"""Can Ray Data's own checkpoints replace those of `--engine ray`? Four cases say no.

    python benchmarks/ray_checkpoints.py

Each case stops a job of 1,000 rows halfway and resumes it (or runs a finished job
again), then counts the rows of the output. A row that is missing or duplicated is a
failure, and so are labels of two models in one result. Ray Data reports success in all
four cases.
"""

import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_BACKEND_LOG_LEVEL="fatal")

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.data import DataContext
from ray.data.checkpoint import CheckpointConfig

ROWS, BLOCK = 1000, 100
Labeler = Callable[[pa.Table], pa.Table]


def labeler(label: str, fail_from: int = ROWS) -> Labeler:
    """Return a stand-in for a model that fails at a row, like a killed worker."""

    def label_batch(batch: pa.Table) -> pa.Table:
        if max(batch["row"].to_pylist()) >= fail_from:
            raise RuntimeError("stopped halfway")
        return batch.append_column("label", pa.array([label] * len(batch)))

    return label_batch


class Job:
    """A corpus, its checkpoints and its output in a separate folder."""

    def __init__(self, folder: Path, ids: list[int], keep: bool = True) -> None:
        self.source, self.out = folder / "source", folder / "out"
        self.checkpoints, self.keep = folder / "checkpoints", keep
        self.source.mkdir(parents=True)
        table = pa.table({"id": ids, "row": list(range(ROWS))})
        pq.write_table(table, self.source / "a.parquet", row_group_size=BLOCK)

    def run(self, label_batch: Labeler) -> None:
        """Run or resume the job until it finishes or the labeler fails."""
        context = DataContext.get_current()
        context.checkpoint_config = CheckpointConfig(
            id_column="id",
            checkpoint_path=str(self.checkpoints),
            delete_checkpoint_on_success=not self.keep,
        )
        rows = ray.data.read_parquet(str(self.source))
        rows = rows.repartition(target_num_rows_per_block=BLOCK)
        try:
            rows.map_batches(
                label_batch, batch_format="pyarrow", batch_size=BLOCK
            ).write_parquet(str(self.out))
        except ray.exceptions.RayTaskError as error:
            if "stopped halfway" not in str(error):
                raise
        finally:
            context.checkpoint_config = None

    def result(self) -> str:
        """Return the numbers of duplicated and missing rows, and the labels."""
        tables = [pq.read_table(path) for path in sorted(self.out.glob("*.parquet"))]
        rows = Counter(row for table in tables for row in table["row"].to_pylist())
        labels = Counter(x for table in tables for x in table["label"].to_pylist())
        duplicates = sum(rows.values()) - len(rows)
        missing = ROWS - len(rows)
        return f"{duplicates} duplicated, {missing} missing, labels {dict(labels)}"


def main() -> None:
    """Run the cases and print a line for each."""
    folder = Path(tempfile.mkdtemp(prefix="perron-"))
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.CRITICAL,
        object_store_memory=200 * 2**20,
        _temp_dir=str(folder / "ray"),
    )
    DataContext.get_current().enable_progress_bars = False
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    all_rows = list(range(ROWS))
    half = ROWS // 2
    try:
        job = Job(folder / "again", all_rows, keep=False)
        job.run(labeler("A"))
        job.run(labeler("A"))
        print(f"finished job run again:            {job.result()}")

        job = Job(folder / "model", all_rows)
        job.run(labeler("A", half))
        job.run(labeler("B"))
        print(f"resumed with another model:        {job.result()}")

        job = Job(folder / "ids", [row % half for row in all_rows])
        job.run(labeler("A", half))
        job.run(labeler("A"))
        print(f"ids that are not unique:           {job.result()}")

        # The state after a worker is killed following its commit, and the job is
        # killed during the retry: a pending file next to the committed one.
        job = Job(folder / "killed", all_rows)
        job.run(labeler("A", half))
        committed = sorted(job.checkpoints.glob("*.parquet"))[0]
        shutil.copy(committed, committed.with_suffix(".pending.parquet"))
        job.run(labeler("A"))
        print(f"killed while retrying a commit:    {job.result()}")
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
