"""``perron train``, and which rows of the training texts each process reads.

    python watch_reads.py FOLDER train RECIPE ...

writes FOLDER/reads-RANK.json: a list of the rows of each batch that was read.
"""

import json
import os
import sys
from pathlib import Path

from perron.cli import main
from perron.text.sampling import Examples

folder = Path(sys.argv.pop(1))
reads: dict[int, list[list[int]]] = {}
batch = Examples.batch


def watched(self, rows):
    reads.setdefault(len(self), []).append([int(row) for row in rows])
    return batch(self, rows)


Examples.batch = watched
try:
    main()
finally:
    path = folder / f"reads-{os.environ['RANK']}.json"
    path.write_text(json.dumps(reads[max(reads)]))  # the training texts are the most
