"""``perron encode``: vectors for texts."""

from perron.cli import engine as corpora
from perron.cli import options
from perron.cli.predict import File, Out, OutFormat, Texts


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

    from perron.cli.inputs import Inputs, Source
    from perron.cli.stream import as_format, load_for, stream

    loaded = load_for(model, tokenised)

    def rows(chunk: Inputs) -> list[dict[str, object]]:
        vectors = loaded.encode(chunk.texts).tolist()
        return [
            {"text": shown, "vector": vector}
            for shown, vector in zip(chunk.texts, vectors, strict=True)
        ]

    source = Source(texts or (), file, text, None, False, as_format(data_format))
    stream(source, rows, "encoding", out, format, skip_bad)
