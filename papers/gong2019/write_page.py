"""Update the results in docs/results.md from the records in results/.

The text between ``<!-- results: NAME -->`` and ``<!-- end -->`` is the output of a
command. For the tables of the paper, the command is ``python -m papers.gong2019 NAME
--only-done --out papers/gong2019/results``. For the other studies, it is ``perron study
papers/gong2019/studies/beyond/NAME.toml --out papers/gong2019/results/runs/NAME``. Both
need only the records. Targets that need a trained model or measure time are copied from
the files written by ``python -m papers.gong2019 NAME``. Nothing is trained here.

``--copy-from FOLDER`` first copies the records and figures from the ``--out`` folder of
``python -m papers.gong2019``.

    PERRON_DATA=FOLDER python -m papers.gong2019.write_page [--copy-from FOLDER]
"""

import argparse
import os
import re
from pathlib import Path

from papers.gong2019.reproduce import TARGETS
from papers.gong2019.workspace import COMMAND, STUDIES, Workspace, study_file
from perron.experiments import read_study
from perron.experiments.records import (
    RECORDS,
    csv_rows,
    find_records,
    finished_records,
    write_records,
)
from perron.experiments.report import markdown, summarize
from perron.files import atomic_write, csv_bytes, make_folder

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "papers" / "gong2019" / "results"
PAGE = ROOT / "docs" / "results.md"
LINK = "../papers/gong2019/results"  # from the page to the figures
BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FROM_RECORDS = ("table1", "table2", "table3", "table4")
OTHER_STUDIES = {
    path.stem: str(path) for path in sorted((STUDIES / "beyond").glob("*.toml"))
}


def main() -> None:
    """Update all results on the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--copy-from", type=Path, help="folder to copy records and figures from"
    )
    source = parser.parse_args().copy_from
    if "PERRON_DATA" not in os.environ:  # or table 1 would list all data as missing
        parser.error("PERRON_DATA is not set. Set it to the folder of the datasets.")
    if source is not None:
        copy_results(source)
    text = PAGE.read_text(encoding="utf-8")
    atomic_write(PAGE, BLOCK.sub(updated_block, text).encode())


def copy_results(source: Path) -> None:
    """Copy the records of all studies that have runs in the folder, and the figures."""
    for folder in sorted((source / "runs").iterdir()):
        study = read_study(OTHER_STUDIES.get(folder.name) or study_file(folder.name))
        target = RESULTS / "runs" / folder.name
        merged = find_records(study, target) | find_records(study, folder)
        if not merged:  # the first run has not finished yet
            continue
        make_folder(target)
        write_records(target / RECORDS, merged.values())
        records = finished_records(study, target)  # without runs of other settings
        write_records(target / RECORDS, records)
        atomic_write(target / "runs.csv", csv_bytes(csv_rows(records)))
    for name in set(TARGETS) - set(FROM_RECORDS):
        for path in sorted(source.glob(f"{name}.*")):
            atomic_write(RESULTS / path.name, path.read_bytes())


def updated_block(block: re.Match[str]) -> str:
    """Return a block of the page with its current content."""
    begin, name, end = block.groups()
    return f"{begin}\n{content(name).strip()}\n\n{end}"


def content(name: str) -> str:
    """Return the output of a target or study as Markdown."""
    if name in TARGETS:
        path = RESULTS / f"{name}.md"
        if name in FROM_RECORDS:
            TARGETS[name](Workspace(RESULTS, only_done=True)).write(RESULTS)
        elif not path.exists():
            return f"Not available yet. Run `{COMMAND} {name}`."
        _, _, text = path.read_text(encoding="utf-8").partition("\n")  # skip the title
        return text.replace("](", f"]({LINK}/").replace("\n### ", "\n#### ")
    study = read_study(OTHER_STUDIES[name])
    lines = summarize(study, finished_records(study, RESULTS / "runs" / name))
    return markdown(study, lines) if lines else "Not run yet."


if __name__ == "__main__":
    main()
