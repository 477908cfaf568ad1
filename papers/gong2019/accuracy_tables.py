"""Tables 3 and 4: accuracies, the paper's beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from papers.gong2019.paper import ACCURACIES, CITED
from papers.gong2019.work import COMMAND, Piece, Work
from perron.experiments import Study
from perron.experiments.records import Record
from perron.experiments.report import (
    SummaryRow,
    csv_rows,
    markdown,
    spread_text,
    summarise,
)
from perron.files import markdown_table

CLASSIFICATION = (
    *("yelp2013", "yelp2014", "imdb", "sst1", "sst1-phrases", "sst2", "sst2-phrases"),
    "imdb-25k",
)
ENTAILMENT = ("snli", "sick")


@dataclass(frozen=True)
class Found:
    """What was found by one study.

    Attributes:
        study: what was asked.
        lines: by variant; without those whose runs are not there.
        records: of all runs.
        missing: what is missing to run it, and how to get it.
        table: of its lines, as Markdown.
    """

    study: Study
    lines: dict[str, SummaryRow] = field(default_factory=dict)
    records: Sequence[Record] = ()
    missing: str | None = None
    table: str = ""


def table3(work: Work) -> Piece:
    """Accuracies on reviews, of sentences and of documents."""
    return _accuracies(work, "table3", "Table 3: reviews", CLASSIFICATION)


def table4(work: Work) -> Piece:
    """Accuracies on pairs of sentences."""
    return _accuracies(work, "table4", "Table 4: entailment", ENTAILMENT)


def _accuracies(work: Work, name: str, title: str, studies: Sequence[str]) -> Piece:
    found = {study: _found(work, study) for study in studies}
    of_paper = {study for told in ACCURACIES.values() for study in told}
    header = ["pooling"]
    for study, of in found.items():
        if study in of_paper:
            header.append(f"{of.study.title}, paper")
        header.append(f"{of.study.title}, ours")
    rows = []
    for row, told in (ACCURACIES | CITED).items():
        is_cited = row in CITED
        if is_cited and not told.keys() & found.keys():
            continue
        cells = [f"{row} (cited)" if is_cited else row]
        for study, of in found.items():
            if study in of_paper:
                cells.append(_number(told.get(study)))
            cells.append("" if is_cited else _ours(of, row))
        rows.append(cells)
    text = "\n\n".join(
        [
            markdown_table(header, rows),
            "Test accuracy in per cent; ours: mean ± standard deviation over seeds, "
            "and how many. What has no column of the paper is not in it; phrases are "
            "those of SST's trees. What the paper cites is not run, but for the CNN. "
            "The command, seed, commit and data fingerprint of every run are in "
            f"{name}-runs.csv.",
            *_details(name, found),
        ]
    )
    columns, *runs = csv_rows([run for of in found.values() for run in of.records])
    origins = [study for study, of in found.items() for _ in of.records]
    runs = [[study, *run] for study, run in zip(origins, runs, strict=True)]
    more = {f"{name}-runs.csv": [["study", *columns], *runs]}
    return Piece(name, title, text + "\n", [header, *rows], more=more)


def _found(work: Work, name: str) -> Found:
    study = work.study(name)
    missing = work.missing(name)
    records = work.records(name)
    lines = summarise(study, records)
    by_variant = {line.variant: line for line in lines}
    table = markdown(study, lines) if lines else ""
    return Found(study, by_variant, records, missing, table)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _ours(found: Found, row: str) -> str:
    line = found.lines.get(row)
    if line is not None:
        told = spread_text("accuracy", line.test.get("accuracy"))
        return f"{told} ({line.seeds})"
    if row not in found.study.variants:
        return "-"
    return "missing" if found.missing else "not run"


def _details(name: str, found: Mapping[str, Found]) -> list[str]:
    """Return a section for each study: its table, or what is missing."""
    then = f"`{COMMAND} {name}`"
    sections = []
    for study, of in found.items():
        body = [f"### {of.study.title}"]
        if of.table:
            body += [f"The study `{study}`:", of.table]
        if of.missing:
            what = "To run more" if of.table else "Missing"
            body.append(f"{what}: {of.missing}. Then: {then}")
        elif not of.table:
            body.append(f"Not run yet: {then}")
        sections.append("\n\n".join(body))
    return sections
