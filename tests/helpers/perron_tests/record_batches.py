"""Run ``perron train``, and record the training batches that each process reads.

    python record_batches.py FOLDER train RECIPE ...

writes FOLDER/reads-RANK.json, a list with the rows of each batch.
"""

import json
import os
import sys
from pathlib import Path

from perron.cli import main
from perron.text.sampling import Examples

folder = Path(sys.argv.pop(1))
reads: dict[int, list[list[int]]] = {}  # rows of each batch, by size of the dataset
original = Examples.batch


def record(self, rows):
    reads.setdefault(len(self), []).append([int(row) for row in rows])
    return original(self, rows)


Examples.batch = record
try:
    main()
finally:
    path = folder / f"reads-{os.environ['RANK']}.json"
    path.write_text(json.dumps(reads[max(reads)]))  # the largest dataset is train
