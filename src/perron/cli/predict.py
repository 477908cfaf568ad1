"""``perron predict`` and ``perron encode``."""

from perron.cli.console import results
from perron.cli.engine import CorpusJob, EngineOptions
from perron.cli.options import CorpusOptions, TextPair, with_options


@with_options(CorpusOptions, EngineOptions)
def predict(
    corpus: CorpusOptions, engine: EngineOptions, text_pair: TextPair = None
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
    if engine.is_asked_for():
        CorpusJob("predict", corpus, text_pair).run(engine)
        return

    from perron.cli.io import Inputs, Source, as_format, load_for, stream
    from perron.text.formats.rows import BadRows

    loaded = load_for(corpus.model, corpus.tokenised)
    is_pair = loaded.word_ids.kind == "pair"
    source = Source(
        corpus.texts or (),
        corpus.file,
        corpus.text,
        text_pair,
        is_pair,
        as_format(corpus.data_format),
    )
    if corpus.texts and corpus.format is None and corpus.out is None:
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

    stream(source, rows, "predicting", corpus.out, corpus.format, corpus.skip_bad)


@with_options(CorpusOptions, EngineOptions)
def encode(corpus: CorpusOptions, engine: EngineOptions) -> None:
    """Turn texts into vectors: what the model pools, before its classifier.

    Files of any size: they are read and written piece by piece. Rows come in the order
    of the file, with the text; its other columns are kept by --engine ray alone.

    Examples:

        perron encode runs/demo "a gorgeous, witty film"

        perron encode runs/demo --file new.csv --text review --out vectors.parquet

        perron encode runs/demo --engine ray --file corpus --out vectors --workers 8
    """
    if engine.is_asked_for():
        CorpusJob("encode", corpus).run(engine)
        return

    from perron.cli.io import Inputs, Source, as_format, load_for, stream

    loaded = load_for(corpus.model, corpus.tokenised)

    def rows(chunk: Inputs) -> list[dict[str, object]]:
        vectors = loaded.encode(chunk.texts).tolist()
        return [
            {"text": shown, "vector": vector}
            for shown, vector in zip(chunk.texts, vectors, strict=True)
        ]

    source = Source(
        corpus.texts or (),
        corpus.file,
        corpus.text,
        None,
        False,
        as_format(corpus.data_format),
    )
    stream(source, rows, "encoding", corpus.out, corpus.format, corpus.skip_bad)
