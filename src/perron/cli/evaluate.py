"""``perron evaluate``: how good a saved model is."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from perron.cli.console import results
from perron.cli.options import DataOptions, Json, Model, with_options
from perron.errors import SettingsError


@with_options(DataOptions)
def evaluate(
    model: Model,
    options: DataOptions,
    part: Annotated[
        str,
        typer.Option(
            help="train, dev or test, of the data it was trained on; with --data "
            "hub:NAME, the split."
        ),
    ] = "test",
    as_json: Json = False,
) -> None:
    """Test a model: accuracy, loss, and precision, recall and F1 of each class.

    Of word graphs also: how much an edge into a word depends on the word that it comes
    from (standard deviation over mean), and the second largest eigenvalue. Where both
    are near zero, every word has the same opinion, and centrality is self-attention.

    Examples:

        perron evaluate runs/demo

        perron evaluate runs/demo --data more.csv --text review --label stars
    """
    import sklearn.metrics

    from perron.cli.choose import data_table
    from perron.pipeline import load
    from perron.training.evaluate import evaluate as run_evaluation
    from perron.training.evaluate import held_out_examples, other_examples
    from perron.training.graph_measures import measure_graphs

    options.check()
    pipeline = load(model)
    if options.data is None:
        examples = held_out_examples(pipeline, model, part, options.data_dir)
    else:
        table = data_table(options) | {"skip_bad": options.skip_bad}
        examples = other_examples(pipeline, table, part, options.data_dir)
    if not len(examples):
        raise SettingsError("there is nothing to test on")
    found = run_evaluation(pipeline.model, examples)
    measured = measure_graphs(pipeline.model, examples)
    report = sklearn.metrics.classification_report(
        examples.labels,
        found.predicted,
        labels=range(len(pipeline.labels)),
        target_names=pipeline.labels,
        output_dict=True,
        zero_division=0,
    )
    summary = {
        "texts": len(examples),
        "accuracy": found.accuracy,
        "loss": found.loss,
        "macro_f1": report["macro avg"]["f1-score"],
        "classes": {name: report[name] for name in pipeline.labels},
        "graphs": [asdict(measure) for measure in measured],
    }
    if as_json:
        typer.echo(json.dumps(summary))
        return
    results.print(
        f"{len(examples):,} texts: accuracy {100 * found.accuracy:.2f} %, "
        f"macro F1 {100 * summary['macro_f1']:.2f} %, loss {found.loss:.4f}"
    )
    table_ = Table("class", "texts", "precision", "recall", "F1")
    for name in pipeline.labels:
        row = report[name]
        shares = [
            f"{100 * row[key]:.1f}" for key in ("precision", "recall", "f1-score")
        ]
        table_.add_row(name, f"{row['support']:.0f}", *shares)
    results.print(table_)
    for measure in measured:
        results.print(
            f"graphs of {measure.level}: context dependence "
            f"{100 * measure.context_dependence:.1f} %, |λ₂| "
            f"{measure.second_eigenvalue:.3f} (at 0 it is self-attention; "
            f"{measure.texts:,} texts, evenly spread)"
        )
