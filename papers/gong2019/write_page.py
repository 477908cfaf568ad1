"""Write the results of the runs into docs/results.md, from the records in results/.

The text between ``<!-- results: NAME -->`` and ``<!-- end -->`` is the output of a
command: ``python -m papers.gong2019 NAME --only-done --out papers/gong2019/results``
for the tables of the paper, ``perron study papers/gong2019/studies/beyond/NAME.toml
--out papers/gong2019/results/runs/NAME`` for the other studies. Both need the records
only.
Targets that need a trained model or measure time are copied from the files that
``python -m papers.gong2019 NAME`` wrote. Nothing is trained here.

``--take FOLDER`` first copies the records and figures from the ``--out`` folder of
``python -m papers.gong2019``.

    PERRON_DATA=FOLDER python -m papers.gong2019.write_page [--take runs/reproduction]
"""

import argparse
import os
import re
from pathlib import Path

from papers.gong2019.reproduce import TARGETS
from papers.gong2019.work import COMMAND, STUDIES, Work, study_file
from perron.experiments import read_study
from perron.experiments.records import (
    RECORDS,
    done_records,
    find_records,
    write_records,
)
from perron.experiments.report import csv_rows, markdown, summarise
from perron.files import csv_bytes, make_folder, write_whole

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "papers" / "gong2019" / "results"
PAGE = ROOT / "docs" / "results.md"
LINK = "../papers/gong2019/results"  # from the page to the figures
BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FROM_RECORDS = ("table1", "table2", "table3", "table4")
OWN = {path.stem: str(path) for path in sorted((STUDIES / "beyond").glob("*.toml"))}


def main() -> None:
    """Update every block of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--take", type=Path, help="folder of --out of the runs")
    asked = parser.parse_args()
    if "PERRON_DATA" not in os.environ:  # table 1 would say that all is missing
        parser.error("PERRON_DATA is not set: it names the folder of the datasets")
    if asked.take is not None:
        take(asked.take)
    text = PAGE.read_text(encoding="utf-8")
    write_whole(PAGE, BLOCK.sub(replaced, text).encode())


def take(out: Path) -> None:
    """Copy the records of all studies that have runs in the folder, and figures."""
    for folder in sorted((out / "runs").iterdir()):
        study = read_study(OWN.get(folder.name) or study_file(folder.name))
        kept = RESULTS / "runs" / folder.name
        both = find_records(study, kept) | find_records(study, folder)
        if not both:  # the first of its runs is under way
            continue
        make_folder(kept)
        write_records(kept / RECORDS, both.values())
        records = done_records(study, kept)  # without those of other settings
        write_records(kept / RECORDS, records)
        write_whole(kept / "runs.csv", csv_bytes(csv_rows(records)))
    for name in set(TARGETS) - set(FROM_RECORDS):
        for path in sorted(out.glob(f"{name}.*")):
            write_whole(RESULTS / path.name, path.read_bytes())


def replaced(block: re.Match[str]) -> str:
    """Return a block with what belongs there now."""
    begin, name, end = block.groups()
    return f"{begin}\n{content(name).strip()}\n\n{end}"


def content(name: str) -> str:
    """Return what a command prints, or printed."""
    if name in TARGETS:
        path = RESULTS / f"{name}.md"
        if name in FROM_RECORDS:
            TARGETS[name](Work(RESULTS, only_done=True)).write(RESULTS)
        elif not path.exists():
            return f"Not made yet: `{COMMAND} {name}`"
        _, _, text = path.read_text(encoding="utf-8").partition("\n")  # its title
        return text.replace("](", f"]({LINK}/").replace("\n### ", "\n#### ")
    study = read_study(OWN[name])
    lines = summarise(study, done_records(study, RESULTS / "runs" / name))
    return markdown(study, lines) if lines else "Not run yet."


if __name__ == "__main__":
    main()
