"""``perron predict`` and ``perron encode``."""

from perron.cli.console import results
from perron.cli.engine import CorpusJob, EngineOptions
from perron.cli.options import CorpusOptions, TextPair, with_options


@with_options(CorpusOptions, EngineOptions)
def predict(
    corpus: CorpusOptions, engine: EngineOptions, text_pair: TextPair = None
) -> None:
    """Classify texts: the label and the probability of each class.

    Typed texts are answered for people, everything else as JSON lines, CSV or Parquet.
    Files of any size: they are read and written piece by piece. Rows are in the order
    of the file and have all of its columns, then label and probabilities. For a pair
    model, type texts two by two, or put a tab between them on standard input.

    Examples:

        perron predict runs/demo "a gorgeous, witty film"

        perron predict runs/demo --file new.csv --text review --out labels.parquet

        perron predict runs/demo --file test.csv --prefix predicted_ --out labels.csv

        cat texts.txt | perron predict runs/demo --format csv

        perron predict runs/demo --engine ray --file corpus --out labels --workers 8
    """
    if engine.is_asked_for():
        CorpusJob("predict", corpus, text_pair).run(engine)
        return

    from perron.cli.io import Inputs, TextSource, stream
    from perron.errors import BadRows
    from perron.integrations.corpora.mapper import result_columns, result_fields
    from perron.pipeline import load

    model = load(corpus.model)
    if corpus.tokenised:
        model = model.pretokenized()
    is_pair = model.word_ids.kind == "pair"
    source = TextSource(corpus, text_pair, is_pair, corpus.texts or ())
    if corpus.texts and corpus.format is None and corpus.out is None:
        for chunk in source.chunks(BadRows()):
            probabilities = model.predict_proba(chunk.texts, chunk.pairs)
            for shown, row in zip(chunk.shown(), probabilities, strict=True):
                best = int(row.argmax())
                share = f"{100 * row[best]:5.1f} %"
                results.print(f"{model.labels[best]}  {share}  {shown}")
        return

    def compute(chunk: Inputs) -> dict[str, list[object]]:
        return result_columns(model, "predict", chunk.texts, chunk.pairs, corpus.prefix)

    fields = result_fields("predict", model.labels, corpus.prefix)
    stream(source, compute, fields, "predicting", corpus)


@with_options(CorpusOptions, EngineOptions)
def encode(corpus: CorpusOptions, engine: EngineOptions) -> None:
    """Turn texts into vectors: what the model pools, before its classifier.

    Files of any size: they are read and written piece by piece. Rows are in the order
    of the file and have all of its columns, then the vector.

    Examples:

        perron encode runs/demo "a gorgeous, witty film"

        perron encode runs/demo --file new.csv --text review --out vectors.parquet

        perron encode runs/demo --engine ray --file corpus --out vectors --workers 8
    """
    if engine.is_asked_for():
        CorpusJob("encode", corpus).run(engine)
        return

    from perron.cli.io import Inputs, TextSource, stream
    from perron.integrations.corpora.mapper import result_columns, result_fields
    from perron.pipeline import load

    model = load(corpus.model)
    if corpus.tokenised:
        model = model.pretokenized()

    def compute(chunk: Inputs) -> dict[str, list[object]]:
        return result_columns(model, "encode", chunk.texts, prefix=corpus.prefix)

    fields = result_fields("encode", model.labels, corpus.prefix)
    source = TextSource(corpus, None, False, corpus.texts or ())
    stream(source, compute, fields, "encoding", corpus)
