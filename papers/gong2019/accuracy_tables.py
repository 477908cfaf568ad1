"""Tables 3 and 4: accuracies of the paper and of our runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from papers.gong2019.paper import ACCURACIES, CITED
from papers.gong2019.workspace import COMMAND, Artifact, Workspace
from perron.experiments import Study
from perron.experiments.records import RunRecord, csv_rows
from perron.experiments.report import (
    SummaryRow,
    format_mean_std,
    markdown,
    summarize,
)
from perron.files import markdown_table

CLASSIFICATION = (
    *("yelp2013", "yelp2014", "imdb", "sst1", "sst1-phrases", "sst2", "sst2-phrases"),
    "imdb-25k",
)
ENTAILMENT = ("snli", "sick")


@dataclass(frozen=True)
class StudyResult:
    """Results of one study.

    Attributes:
        study: The study.
        summary: Summary of each variant that has been run.
        records: Records of all runs.
        missing: Missing data and how to get it, or None.
        table: Summary table, as Markdown.
    """

    study: Study
    summary: dict[str, SummaryRow] = field(default_factory=dict)
    records: Sequence[RunRecord] = ()
    missing: str | None = None
    table: str = ""


def table3(workspace: Workspace) -> Artifact:
    """Compare accuracies on reviews, both sentences and documents."""
    return _accuracy_table(workspace, "table3", "Table 3: reviews", CLASSIFICATION)


def table4(workspace: Workspace) -> Artifact:
    """Compare accuracies on sentence pairs."""
    return _accuracy_table(workspace, "table4", "Table 4: entailment", ENTAILMENT)


def _accuracy_table(
    workspace: Workspace, name: str, title: str, studies: Sequence[str]
) -> Artifact:
    results = {study: _study_result(workspace, study) for study in studies}
    in_paper = {study for accuracies in ACCURACIES.values() for study in accuracies}
    header = ["pooling"]
    for study, result in results.items():
        if study in in_paper:
            header.append(f"{result.study.title}, paper")
        header.append(f"{result.study.title}, ours")
    rows = []
    for row, accuracies in (ACCURACIES | CITED).items():
        is_cited = row in CITED
        if is_cited and not accuracies.keys() & results.keys():
            continue
        cells = [f"{row} (cited)" if is_cited else row]
        for study, result in results.items():
            if study in in_paper:
                cells.append(_paper_cell(accuracies.get(study)))
            cells.append("" if is_cited else _our_cell(result, row))
        rows.append(cells)
    text = "\n\n".join(
        [
            markdown_table(header, rows),
            "Test accuracy in %. Ours is the mean ± standard deviation over seeds, "
            "with the number of seeds in parentheses. Datasets without a paper column "
            "are not in the paper. The phrases are from SST's trees. We did not "
            "run the systems that the paper cites, except the CNN. The command, seed, "
            f"commit and data fingerprint of every run are in {name}-runs.csv.",
            *_details(name, results),
        ]
    )
    records = [record for result in results.values() for record in result.records]
    columns, *runs = csv_rows(records)
    origins = [study for study, result in results.items() for _ in result.records]
    runs = [[study, *run] for study, run in zip(origins, runs, strict=True)]
    more = {f"{name}-runs.csv": [["study", *columns], *runs]}
    return Artifact(name, title, text + "\n", [header, *rows], more=more)


def _study_result(workspace: Workspace, name: str) -> StudyResult:
    study = workspace.study(name)
    missing = workspace.missing(name)
    records = workspace.records(name)
    rows = summarize(study, records)
    table = markdown(study, rows) if rows else ""
    summary = {row.variant: row for row in rows}
    return StudyResult(study, summary, records, missing, table)


def _paper_cell(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{accuracy:.1f}"


def _our_cell(result: StudyResult, variant: str) -> str:
    row = result.summary.get(variant)
    if row is not None:
        accuracy = format_mean_std("accuracy", row.test.get("accuracy"))
        return f"{accuracy} ({row.seeds})"
    if variant not in result.study.variants:
        return "-"
    return "missing" if result.missing else "not run"


def _details(name: str, results: Mapping[str, StudyResult]) -> list[str]:
    """Return a section per study, with its table or how to get the missing data."""
    command = f"`{COMMAND} {name}`"
    sections = []
    for study, result in results.items():
        body = [f"### {result.study.title}"]
        if result.table:
            body += [f"Study `{study}`:", result.table]
        if result.missing:
            label = "Missing for more runs" if result.table else "Missing"
            body.append(f"{label}: {result.missing}. Then run {command}.")
        elif not result.table:
            body.append(f"Not run yet. Run {command}.")
        sections.append("\n\n".join(body))
    return sections
