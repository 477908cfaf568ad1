"""Put the results into docs/results.md, from the records of the runs beside this file.

Between ``<!-- results: NAME -->`` and ``<!-- end -->`` stands what a command prints:
``perron reproduce NAME --only-done --out docs/results`` for the tables of the paper,
``perron study docs/results/studies/NAME.toml --out docs/results/runs/NAME`` for the
studies. Both need no more than the records. What needs a trained model, or measures
time, was made by ``perron reproduce NAME`` and is taken from its files. Nothing is
trained here.

With ``--take FOLDER``, that of ``perron reproduce --out``, its records and the files of
figures are copied first.

    PERRON_DATA=FOLDER python docs/results/write_page.py [--take runs/reproduction]
"""

import argparse
import os
import re
from pathlib import Path

from perron.experiments import read_study
from perron.experiments.records import write_records
from perron.experiments.report import csv_rows, markdown, summarise
from perron.experiments.runner import RECORDS, done_records, find_records
from perron.files import make_folder, write_whole
from perron.reproduction.reproduce import TARGETS
from perron.reproduction.work import Work
from perron.tables import csv_bytes

HERE = Path(__file__).parent
PAGE = HERE.parent / "results.md"
BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FROM_RECORDS = ("table1", "table2", "table3", "table4")
OWN = {path.stem: str(path) for path in sorted((HERE / "studies").glob("*.toml"))}


def main() -> None:
    """Write every block of the page anew."""
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
        study = read_study(OWN.get(folder.name, folder.name))
        kept = HERE / "runs" / folder.name
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
            write_whole(HERE / path.name, path.read_bytes())


def replaced(block: re.Match[str]) -> str:
    """Return a block with what belongs there now."""
    begin, name, end = block.groups()
    return f"{begin}\n{content(name).strip()}\n\n{end}"


def content(name: str) -> str:
    """Return what a command prints, or printed."""
    if name in TARGETS:
        path = HERE / f"{name}.md"
        if name in FROM_RECORDS:
            TARGETS[name](Work(HERE, only_done=True)).write(HERE)
        elif not path.exists():
            return f"Not made yet: `perron reproduce {name}`"
        _, _, text = path.read_text(encoding="utf-8").partition("\n")  # its title
        return text.replace("](", "](results/").replace("\n### ", "\n#### ")
    study = read_study(OWN[name])
    lines = summarise(study, done_records(study, HERE / "runs" / name))
    return markdown(study, lines) if lines else "Not run yet."


if __name__ == "__main__":
    main()
