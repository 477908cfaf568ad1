"""``perron predict`` and ``perron encode``."""

from pathlib import Path
from typing import Annotated

import typer

from perron.cli import engine as corpora
from perron.cli import options
from perron.cli.console import results

Texts = Annotated[
    list[str] | None, typer.Argument(help="Texts; without, --file or standard input.")
]
File = Annotated[
    str | None,
    typer.Option(
        help="CSV, TSV, JSON lines, Parquet, or plain text with a text a line; - is "
        "standard input."
    ),
]
Out = Annotated[Path | None, typer.Option(help="File to write [standard output].")]
OutFormat = Annotated[
    str | None, typer.Option("--format", help="jsonl, csv or parquet.")
]


def predict(
    model: options.Model,
    texts: Texts = None,
    file: File = None,
    text: options.Text = None,
    text_pair: options.TextPair = None,
    data_format: options.DataFormat = None,
    tokenised: options.Tokenised = False,
    format: OutFormat = None,
    out: Out = None,
    skip_bad: options.SkipBad = False,
    engine: corpora.Engine = None,
    workers: corpora.Workers = None,
    address: corpora.Address = None,
    piece_rows: corpora.PieceRows = None,
    prefix: corpora.Prefix = None,
) -> None:
    """Classify texts: the label and the probability of each class.

    Texts that are typed are answered for people, everything else as JSON lines, CSV or
    Parquet. Files of any size: they are read and written piece by piece. Rows come in
    the order of the file, with the text; its other columns are kept by --engine ray
    alone. For a pair model, type texts two by two, or put a tab between them on
    standard input.

    Examples:

        perron predict runs/demo "a gorgeous, witty film"

        perron predict runs/demo --file new.csv --text review --out labels.parquet

        cat texts.txt | perron predict runs/demo --format csv

        perron predict runs/demo --engine ray --file corpus --out labels --workers 8
    """
    chosen = corpora.EngineOptions(engine, workers, address, piece_rows, prefix)
    if chosen.is_asked_for():
        corpora.CorpusJob(
            model=model,
            task="predict",
            texts=texts,
            file=file,
            text=text,
            text_pair=text_pair,
            data_format=data_format,
            tokenised=tokenised,
            format=format,
            out=out,
            skip_bad=skip_bad,
        ).run(chosen)
        return

    from perron.cli.io import Inputs, Source, as_format, load_for, stream
    from perron.text.formats.rows import BadRows

    loaded = load_for(model, tokenised)
    is_pair = loaded.word_ids.kind == "pair"
    source = Source(texts or (), file, text, text_pair, is_pair, as_format(data_format))
    if texts and format is None and out is None:
        for chunk in source.chunks(BadRows()):
            probabilities = loaded.predict_proba(chunk.texts, chunk.pairs)
            for shown, row in zip(chunk.shown(), probabilities, strict=True):
                best = int(row.argmax())
                share = f"{100 * row[best]:5.1f} %"
                results.print(f"{loaded.labels[best]}  {share}  {shown}")
        return

    def rows(chunk: Inputs) -> list[dict[str, object]]:
        told: list[dict[str, object]] = [{"text": shown} for shown in chunk.texts]
        for place, pair in enumerate(chunk.pairs or ()):
            told[place]["text_pair"] = pair
        probabilities = loaded.predict_proba(chunk.texts, chunk.pairs).tolist()
        for row, shares in zip(told, probabilities, strict=True):
            row["label"] = loaded.labels[shares.index(max(shares))]
            row["probabilities"] = dict(zip(loaded.labels, shares, strict=True))
        return told

    stream(source, rows, "predicting", out, format, skip_bad)


def encode(
    model: options.Model,
    texts: Texts = None,
    file: File = None,
    text: options.Text = None,
    data_format: options.DataFormat = None,
    tokenised: options.Tokenised = False,
    format: OutFormat = None,
    out: Out = None,
    skip_bad: options.SkipBad = False,
    engine: corpora.Engine = None,
    workers: corpora.Workers = None,
    address: corpora.Address = None,
    piece_rows: corpora.PieceRows = None,
    prefix: corpora.Prefix = None,
) -> None:
    """Turn texts into vectors: what the model pools, before its classifier.

    Files of any size: they are read and written piece by piece. Rows come in the order
    of the file, with the text; its other columns are kept by --engine ray alone.

    Examples:

        perron encode runs/demo "a gorgeous, witty film"

        perron encode runs/demo --file new.csv --text review --out vectors.parquet

        perron encode runs/demo --engine ray --file corpus --out vectors --workers 8
    """
    chosen = corpora.EngineOptions(engine, workers, address, piece_rows, prefix)
    if chosen.is_asked_for():
        corpora.CorpusJob(
            model=model,
            task="encode",
            texts=texts,
            file=file,
            text=text,
            text_pair=None,
            data_format=data_format,
            tokenised=tokenised,
            format=format,
            out=out,
            skip_bad=skip_bad,
        ).run(chosen)
        return

    from perron.cli.io import Inputs, Source, as_format, load_for, stream

    loaded = load_for(model, tokenised)

    def rows(chunk: Inputs) -> list[dict[str, object]]:
        vectors = loaded.encode(chunk.texts).tolist()
        return [
            {"text": shown, "vector": vector}
            for shown, vector in zip(chunk.texts, vectors, strict=True)
        ]

    source = Source(texts or (), file, text, None, False, as_format(data_format))
    stream(source, rows, "encoding", out, format, skip_bad)
