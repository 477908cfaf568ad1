"""Tables 3 and 4: accuracies, the paper's beside ours."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from perron.reproduction.data_tables import TITLES
from perron.reproduction.paper import ACCURACIES, CITED
from perron.reproduction.work import Piece, Work
from perron.studies.records import Record
from perron.studies.summary import Line, csv_rows, markdown, summarise
from perron.tables import markdown_table, with_deviation

CLASSIFICATION = ("yelp2013", "yelp2014", "imdb", "sst1", "sst2", "imdb-25k")
ENTAILMENT = ("snli", "sick")


@dataclass(frozen=True)
class Found:
    """What was found about one dataset.

    Attributes:
        lines: by variant; without those whose runs are not there.
        records: of all runs.
        missing: what is missing to run it, and how to get it.
        table: of the study, as Markdown.
    """

    lines: dict[str, Line] = field(default_factory=dict)
    records: Sequence[Record] = ()
    missing: str | None = None
    table: str = ""


def table3(work: Work) -> Piece:
    """Accuracies on reviews, of sentences and of documents."""
    return _accuracies(work, "table3", "Table 3: reviews", CLASSIFICATION)


def table4(work: Work) -> Piece:
    """Accuracies on pairs of sentences."""
    return _accuracies(work, "table4", "Table 4: entailment", ENTAILMENT)


def _accuracies(work: Work, name: str, title: str, datasets: Sequence[str]) -> Piece:
    found = {dataset: _found(work, dataset) for dataset in datasets}
    header = ["pooling"]
    for dataset in datasets:
        header += [f"{TITLES[dataset]}, paper", f"{TITLES[dataset]}, ours"]
    rows = []
    for row, told in ACCURACIES.items():
        cells = [row]
        for dataset in datasets:
            cells += [_number(told.get(dataset)), _ours(found[dataset], row)]
        rows.append(cells)
    for row, told in CITED.items():
        if any(dataset in told for dataset in datasets):
            cells = [f"{row} (cited)"]
            for dataset in datasets:
                cells += [_number(told.get(dataset)), ""]
            rows.append(cells)
    text = "\n\n".join(
        [
            markdown_table(header, rows),
            "Test accuracy in per cent; ours: mean ± standard deviation over seeds, "
            "and how many. IMDB-25k and SICK are not in the paper. What the paper "
            "cites is not run. The command, seed, commit and data fingerprint of every "
            f"run are in {name}-runs.csv.",
            *_details(name, datasets, found),
        ]
    )
    columns, *_ = csv_rows([])
    runs = [
        [dataset, *row]
        for dataset, of in found.items()
        for row in csv_rows(of.records)[1:]
    ]
    more = {f"{name}-runs.csv": [["dataset", *columns], *runs]}
    return Piece(name, title, text + "\n", [header, *rows], more=more)


def _found(work: Work, dataset: str) -> Found:
    study = work.study(dataset)
    missing = work.missing(dataset)
    records = work.records(dataset)
    lines = summarise(study, records)
    table = markdown(study, lines) if lines else ""
    return Found({line.variant: line for line in lines}, records, missing, table)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _ours(found: Found, row: str) -> str:
    line = found.lines.get(row)
    if line is not None:
        told = with_deviation(line.test, line.test_deviation)
        return f"{told} ({line.seeds})"
    return "missing" if found.missing else "not run"


def _details(name: str, datasets: Sequence[str], found: dict[str, Found]) -> list[str]:
    """Return a section for each dataset: its study's table, or what is missing."""
    then = f"`perron reproduce {name}`"
    sections = []
    for dataset in datasets:
        of = found[dataset]
        body = [f"### {TITLES[dataset]}"]
        if of.table:
            body += [f"The study `{dataset}`:", of.table]
        if of.missing:
            what = "To run more" if of.table else "Missing"
            body.append(f"{what}: {of.missing}. Then: {then}")
        elif not of.table:
            body.append(f"Not run yet: {then}")
        sections.append("\n\n".join(body))
    return sections
