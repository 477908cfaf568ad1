"""``perron info`` and ``perron data``: the installation, models and datasets."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from perron import __version__
from perron.cli.console import print_message, results
from perron.cli.options import DataOptions, Json, TrainOptions, with_options
from perron.errors import DataError

PACKAGES = ("torch", "numba", "tokenizers", "datasets", "accelerate", "safetensors")


def info(
    model: Annotated[
        Path | None, typer.Argument(help="Folder of a trained model to describe.")
    ] = None,
) -> None:
    """Show information about the installation or about a model.

    Without MODEL, list versions, devices, recipes and components, including those of
    plugins.

    Examples:

        perron info

        perron info runs/demo
    """
    rows = _installation_rows() if model is None else _model_rows(model)
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    for name, value in rows.items():
        table.add_row(name, value)
    results.print(table)


def _installation_rows() -> dict[str, str]:
    import torch

    from perron.kernels import selected
    from perron.text.cache import cache_folder
    from perron.training import recipe_names

    devices, types = [f"CPU, {torch.get_num_threads()} threads"], ["cpu"]
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        devices.append(f"{accelerator}, {torch.accelerator.device_count()}")
        types.append(str(accelerator))
    kernels = [
        f"{', '.join(sorted({*selected(torch.empty(0, device=device)).values()}))} "
        f"on {device}"
        for device in types
    ]
    return {
        "perron": __version__,
        **{name: _version(name) for name in PACKAGES},
        "devices": "; ".join(devices),
        "kernels": "; ".join(kernels),
        "recipes": ", ".join(recipe_names()),
        **_components(),
        "PERRON_DATA": os.environ.get("PERRON_DATA", "not set"),
        "cache": str(cache_folder()),
    }


def _components() -> dict[str, str]:
    """Return the names of all components, by kind."""
    from perron.layers.encoders import ENCODERS
    from perron.pooling.base import AGGREGATORS
    from perron.pooling.connectivity import CONNECTIVITIES
    from perron.registry import load_plugins
    from perron.text.formats import formats
    from perron.training.metrics import METRICS

    load_plugins()
    registries: dict[str, Mapping[str, Any]] = {
        "aggregators": AGGREGATORS,
        "connectivities": CONNECTIVITIES,
        "encoders": ENCODERS,
        "data formats": formats,
        "metrics": METRICS,
    }
    return {kind: ", ".join(registry) for kind, registry in registries.items()}


def _model_rows(folder: Path) -> dict[str, str]:
    from perron.pipeline import load

    pipeline = load(folder)
    config = pipeline.model.config
    settings = config.settings
    rows = {
        "kind": settings.kind,
        "classes": ", ".join(config.labels),
        "vocabulary": f"{config.vocab_size:,} words",
        "word vectors": f"{settings.embedding.embedding_dim}-d, "
        + ("frozen" if settings.embedding.freeze else "trainable"),
        "encoder": _describe(settings.encoder),
        "aggregator": _describe(settings.aggregator),
        "max length": f"{config.max_words} words",
        "temperature": f"{config.temperature:.3f}",
        "parameters": f"{sum(p.numel() for p in pipeline.model.parameters()):,}",
    }
    if settings.kind == "document":
        rows["sentences"] = (
            f"{_describe(settings.sentence_encoder or settings.encoder)}; "
            f"{_describe(settings.sentence_aggregator or settings.aggregator)}; "
            f"at most {config.max_sentences}"
        )
    return rows


def _describe(settings: object) -> str:
    values = settings.model_dump()  # type: ignore[attr-defined]
    name = values.pop("name")
    options = ", ".join(f"{key}={value}" for key, value in values.items())
    return f"{name} ({options})" if options else str(name)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


data_app = typer.Typer(help="Inspect datasets.", no_args_is_help=True)


@data_app.command()
@with_options(DataOptions)
def stats(
    options: DataOptions,
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of recipes. Defaults to all recipes of the paper whose data is "
            "available."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the size, classes, mean length and vocabulary of datasets.

    Without arguments, prints Table 1 of the paper.

    Examples:

        perron data stats sst1 sst2 snli --data-dir ~/data

        perron data stats --data reviews.csv --text review --label stars
    """
    from perron.cli.runs import resolve_recipe
    from perron.text.datasets import load_data, statistics
    from perron.training import recipe_names, recipe_table

    selected: list[str | None] = list(recipes or ())
    if not selected:
        names = [name for name in recipe_names() if "data" in recipe_table(name)]
        paper = [name for name in names if name != "demo"]
        selected = [None] if options.data else [*paper]
    rows = {}
    for name in selected:
        recipe = resolve_recipe(TrainOptions(recipe=name, **vars(options)))
        try:
            splits = load_data(recipe.data)
        except DataError as error:
            if recipes or options.data or error.line is not None:
                raise
            print_message(f"{name}: {error}")
            continue
        rows[name or str(options.data)] = statistics(splits, recipe.data, "lower")
    if as_json:
        typer.echo(json.dumps({name: asdict(row) for name, row in rows.items()}))
        return
    table = Table("data", "train", "dev", "test", "classes", "mean words", "vocabulary")
    for name, row in rows.items():
        table.add_row(
            name,
            *(f"{size:,}" for size in row.sizes.values()),
            str(len(row.labels)),
            f"{row.mean_length:.1f}",
            f"{row.vocabulary:,}",
        )
    results.print(table)
    for name, row in rows.items():
        counts = ", ".join(f"{label} {count:,}" for label, count in row.labels.items())
        results.print(f"{name}: {counts}")
        if row.skipped or row.dropped:
            results.print(
                f"{name}: skipped {row.skipped} invalid rows and {row.dropped} without "
                "a label"
            )
