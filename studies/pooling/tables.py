"""Tables over all datasets of the study of pooling over frozen states.

    python studies/pooling/tables.py

Reads the records in ``results``, one file per study next to this script. To run or
resume a study and store its records:

    mkdir -p runs/studies/sst2
    cp studies/pooling/results/sst2.jsonl runs/studies/sst2/records.jsonl
    perron study studies/pooling/sst2.toml
    cp runs/studies/sst2/records.jsonl studies/pooling/results/sst2.jsonl
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from perron.experiments import Study, read_study
from perron.experiments.records import RunRecord, read_records
from perron.experiments.report import ACCURACY, chosen_runs, compare_runs
from perron.files import format_p_value, markdown_table

FOLDER = Path(__file__).parent
LAYERS = ("last", "mix")
POOLINGS = (
    "mean",
    "max",
    "CLS",
    "self-attention",
    "self-attention x4",
    "centrality",
    "centrality x4",
    "bilinear",
    "bilinear x4",
    "low rank",
)
BASELINES = ("tfidf", "logistic regression")
# Question -> variant and reference, compared over the same layers.
QUESTIONS = {
    "self-attention - mean": ("self-attention", "mean"),
    "centrality - self-attention": ("centrality", "self-attention"),
    "bilinear - self-attention": ("bilinear", "self-attention"),
    "low rank - self-attention": ("low rank", "self-attention"),
    "centrality x4 - self-attention x4": ("centrality x4", "self-attention x4"),
    "bilinear x4 - self-attention x4": ("bilinear x4", "self-attention x4"),
}


class Results:
    """Finished runs of one study."""

    def __init__(self, study: Study, records: Sequence[RunRecord]) -> None:
        self.study, self.records = study, records
        self.title = study.title.rpartition(", ")[2]

    def runs(self, variant: str) -> list[RunRecord]:
        """Return the runs of a variant with the learning rate that is best on dev."""
        return chosen_runs(self.study, variant, self.records)

    def accuracy(self, variant: str, split: str) -> str:
        """Return the mean accuracy in percent over the seeds of a variant."""
        values = [getattr(run, split)[ACCURACY] for run in self.runs(variant)]
        return f"{100 * sum(values) / len(values):.1f}" if values else ""

    def difference(self, variant: str, reference: str) -> str:
        """Return the difference in test accuracy and its p-value."""
        first, second = self.runs(variant), self.runs(reference)
        if not first or not second:
            return ""
        result = compare_runs(self.study, first, second)
        p_value = format_p_value(result.p_value)
        return f"{100 * result.difference:+.1f} ({p_value})"


def read_results() -> list[Results]:
    """Read the records of all studies in the folder that have some."""
    results = []
    for path in sorted((FOLDER / "results").glob("*.jsonl")):
        study = read_study(str(FOLDER / f"{path.stem}.toml"))
        results.append(Results(study, read_records(path)))
    return results


def print_table(
    title: str,
    results: Sequence[Results],
    rows: Sequence[str],
    cell: Callable[[Results, str], str],
) -> None:
    """Print a Markdown table with one column per dataset."""
    print(f"\n{title}\n")
    header = ["", *(result.title for result in results)]
    print(markdown_table(header, [[r, *(cell(x, r) for x in results)] for r in rows]))


def main() -> None:
    """Print all tables."""
    results = read_results()
    print("Seeds per variant, where the learning rate has been chosen:")
    for result in results:
        counts = sorted({len(result.runs(f"{p}, last")) for p in POOLINGS})
        print(f"  {result.title}: {counts[0]} to {counts[-1]}")
    for split in ("test", "dev"):
        print_table(
            f"Accuracy on {split}, %: last layer / mix of all layers",
            results,
            POOLINGS,
            lambda result, name, split=split: " / ".join(
                result.accuracy(f"{name}, {layers}", split) for layers in LAYERS
            ),
        )
        print_table(
            f"Baselines on {split}, %",
            results,
            BASELINES,
            lambda result, name, split=split: result.accuracy(name, split),
        )
    for layers in LAYERS:
        print_table(
            f"Difference in test accuracy, in points (p), {layers}",
            results,
            tuple(QUESTIONS),
            lambda result, name, layers=layers: result.difference(
                *(f"{pooling}, {layers}" for pooling in QUESTIONS[name])
            ),
        )
    print_table(
        "Mix of all layers - last layer, in points (p)",
        results,
        POOLINGS,
        lambda result, name: result.difference(f"{name}, mix", f"{name}, last"),
    )


if __name__ == "__main__":
    main()
