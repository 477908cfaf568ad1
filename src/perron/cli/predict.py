"""``perron predict``, ``perron encode`` and ``perron evaluate``."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from perron.cli import limit_threads
from perron.cli.console import confusion_table, results
from perron.cli.engine import CorpusJob, EngineOptions
from perron.cli.options import (
    CorpusOptions,
    DataOptions,
    Json,
    Model,
    TextPair,
    with_options,
)
from perron.errors import SettingsError


@with_options(CorpusOptions, EngineOptions)
def predict(
    corpus: CorpusOptions, engine: EngineOptions, text_pair: TextPair = None
) -> None:
    """Classify texts.

    Results for texts given as arguments are printed in a readable form. Results for
    files and standard input are written as JSON lines, CSV or Parquet: one row per text
    in the original order, with all columns of the input followed by the label and the
    probability of each class. Files are streamed and may be of any size.

    For pair models, pass the two texts of each pair one after another, or separate them
    by a tab on standard input.

    Examples:

        perron predict runs/demo "a gorgeous, witty film"

        perron predict runs/demo --file new.csv --text review --out labels.parquet

        perron predict runs/demo --file test.csv --prefix predicted_ --out labels.csv

        cat texts.txt | perron predict runs/demo --format csv

        perron predict runs/demo --engine ray --file corpus --out labels --workers 8
    """
    if engine.is_selected():
        CorpusJob("predict", corpus, text_pair).run(engine)
        return

    from perron.cli.io import Inputs, TextSource, stream
    from perron.errors import InvalidRows
    from perron.pipeline import load

    model = load(corpus.model)
    limit_threads(model.model)
    if corpus.pretokenized:
        model = model.pretokenized()
    is_pair = model.processor.kind == "pair"
    source = TextSource(corpus, text_pair, is_pair, corpus.texts or ())
    if corpus.texts and corpus.format is None and corpus.out is None:
        for chunk in source.chunks(InvalidRows()):
            probabilities = model.predict_proba(chunk.texts, chunk.pairs)
            for text, row in zip(chunk.display_texts(), probabilities, strict=True):
                best = int(row.argmax())
                probability = f"{100 * row[best]:5.1f} %"
                results.print(f"{model.labels[best]}  {probability}  {text}")
        return

    from perron.integrations.corpora.mapper import result_columns, result_fields

    def compute(chunk: Inputs) -> dict[str, list[object]]:
        return result_columns(model, "predict", chunk.texts, chunk.pairs, corpus.prefix)

    fields = result_fields("predict", model.labels, corpus.prefix)
    stream(source, compute, fields, "predicting", corpus)


@with_options(CorpusOptions, EngineOptions)
def encode(corpus: CorpusOptions, engine: EngineOptions) -> None:
    """Encode texts as vectors: the pooled representation before the classifier.

    Results are written as JSON lines, CSV or Parquet: one row per text in the original
    order, with all columns of the input followed by the vector. Files are streamed and
    may be of any size.

    Examples:

        perron encode runs/demo "a gorgeous, witty film"

        perron encode runs/demo --file new.csv --text review --out vectors.parquet

        perron encode runs/demo --engine ray --file corpus --out vectors --workers 8
    """
    if engine.is_selected():
        CorpusJob("encode", corpus).run(engine)
        return

    from perron.cli.io import Inputs, TextSource, stream
    from perron.integrations.corpora.mapper import result_columns, result_fields
    from perron.pipeline import load

    model = load(corpus.model)
    limit_threads(model.model)
    if corpus.pretokenized:
        model = model.pretokenized()

    def compute(chunk: Inputs) -> dict[str, list[object]]:
        return result_columns(model, "encode", chunk.texts, prefix=corpus.prefix)

    fields = result_fields("encode", model.labels, corpus.prefix)
    source = TextSource(corpus, None, False, corpus.texts or ())
    stream(source, compute, fields, "encoding", corpus)


PLOTS = (".png", ".svg", ".pdf")


@with_options(DataOptions)
def evaluate(
    model: Model,
    options: DataOptions,
    part: Annotated[
        str,
        typer.Option(
            help="Part of the model's data to evaluate on: train, dev or test. With "
            "--data hub:NAME, the split of the dataset."
        ),
    ] = "test",
    plot: Annotated[
        Path | None,
        typer.Option(help="PNG, SVG or PDF file to draw the confusion matrix to."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a model on labeled data.

    Prints metrics, the scores of each class and the confusion matrix (for more than 12
    classes, the most frequent confusions). ECE is the expected calibration error: how
    much the probability of the predicted class differs from its accuracy.

    For models with word graphs, also prints how much an edge into a word depends on its
    source word (standard deviation divided by mean) and the second largest eigenvalue.
    If both are close to zero, centrality is equivalent to self-attention.

    Examples:

        perron evaluate runs/demo

        perron evaluate runs/demo --data more.csv --text review --label stars

        perron evaluate runs/demo --plot confusion.png
    """
    import sklearn.metrics

    from perron.cli.runs import EncodingBar, data_settings
    from perron.pipeline import load
    from perron.training.callbacks import draw_confusion
    from perron.training.metrics import evaluate as run_evaluation
    from perron.training.metrics import format_metrics, measure_graphs
    from perron.training.prepare import (
        cached_examples,
        load_examples,
        load_run_examples,
    )
    from perron.training.recipe import SETTINGS, TrainingSettings, read_settings

    options.check()
    if plot is not None and plot.suffix.lower() not in PLOTS:
        raise SettingsError(
            f"--plot must be a file with the extension {', '.join(PLOTS)}, got {plot}."
        )
    pipeline = load(model)
    limit_threads(pipeline.model)
    if options.data is None:
        examples = load_run_examples(pipeline, model, part, options.data_dir)
    else:
        table = data_settings(options) | {"skip_invalid": options.skip_invalid}
        examples = load_examples(pipeline, table, part, options.data_dir)
    if not len(examples):
        raise SettingsError("the data contains no examples to evaluate on.")
    has_settings = (model / SETTINGS).is_file()
    settings = read_settings(model).training if has_settings else TrainingSettings()
    (examples,) = cached_examples(pipeline.model, [examples], settings, EncodingBar())
    evaluation = run_evaluation(pipeline.model, examples)
    graphs = measure_graphs(pipeline.model, examples)
    report = sklearn.metrics.classification_report(
        examples.labels,
        evaluation.predicted,
        labels=range(len(pipeline.labels)),
        target_names=pipeline.labels,
        output_dict=True,
        zero_division=0,
    )
    summary = {
        "texts": len(examples),
        **evaluation.metrics,
        "classes": {name: report[name] for name in pipeline.labels},
        "confusion": evaluation.confusion.tolist(),
        "graphs": [asdict(measure) for measure in graphs],
    }
    if plot is not None:
        draw_confusion(pipeline.labels, evaluation.confusion.tolist(), plot)
    if as_json:
        typer.echo(json.dumps(summary))
        return
    results.print(f"{len(examples):,} texts: {format_metrics(evaluation.metrics)}")
    class_table = Table("class", "texts", "precision", "recall", "F1")
    for name in pipeline.labels:
        row = report[name]
        scores = [
            f"{100 * row[key]:.1f}" for key in ("precision", "recall", "f1-score")
        ]
        class_table.add_row(name, f"{row['support']:.0f}", *scores)
    results.print(class_table)
    results.print(confusion_table(pipeline.labels, summary["confusion"]))
    for measure in graphs:
        results.print(
            f"graphs of {measure.level}: context dependence "
            f"{100 * measure.context_dependence:.1f} %, |λ₂| "
            f"{measure.second_eigenvalue:.3f} (0 is self-attention; mean over "
            f"{measure.texts:,} texts)"
        )
