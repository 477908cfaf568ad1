"""``perron encode``: vectors for texts."""

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
) -> None:
    """Turn texts into vectors: what the model pools, before its classifier.

    Files of any size: they are read and written piece by piece.

    Examples:

        perron encode runs/demo "a gorgeous, witty film"

        perron encode runs/demo --file new.csv --text review --out vectors.parquet
    """
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
