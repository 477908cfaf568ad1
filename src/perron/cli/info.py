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
    """Show versions, devices, recipes and components; or describe a model.

    Components are listed by their names in recipes, with those of plugins.

    Examples:

        perron info

        perron info runs/demo
    """
    rows = _of_model(model) if model is not None else _of_machine()
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    for name, value in rows.items():
        table.add_row(name, value)
    results.print(table)


def _of_machine() -> dict[str, str]:
    import torch

    from perron.kernels import selected
    from perron.text.cache import cache_folder
    from perron.training import recipe_names

    devices, types = [f"CPU, {torch.get_num_threads()} threads"], ["cpu"]
    if torch.accelerator.is_available():
        found = torch.accelerator.current_accelerator()
        devices.append(f"{found}, {torch.accelerator.device_count()}")
        types.append(str(found))
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


def _of_model(folder: Path) -> dict[str, str]:
    from perron.pipeline import load

    pipeline = load(folder)
    config = pipeline.model.config
    parts = config.settings
    rows = {
        "kind": parts.kind,
        "classes": ", ".join(config.labels),
        "vocabulary": f"{config.vocab_size:,} words",
        "word vectors": f"{parts.embedding.embedding_dim}-d, "
        + ("frozen" if parts.embedding.freeze else "tuned"),
        "encoder": _shown(parts.encoder),
        "aggregator": _shown(parts.aggregator),
        "cut at": f"{config.max_words} words",
        "weights": f"{sum(p.numel() for p in pipeline.model.parameters()):,}",
    }
    if parts.kind == "document":
        rows["of sentences"] = (
            f"{_shown(parts.sentence_encoder or parts.encoder)}; "
            f"{_shown(parts.sentence_aggregator or parts.aggregator)}; "
            f"cut at {config.max_sentences}"
        )
    return rows


def _shown(settings: object) -> str:
    values = settings.model_dump()  # type: ignore[attr-defined]
    name = values.pop("name")
    rest = ", ".join(f"{key} {value}" for key, value in values.items())
    return f"{name} ({rest})" if rest else str(name)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


data_app = typer.Typer(help="Look at datasets.", no_args_is_help=True)


@data_app.command()
@with_options(DataOptions)
def stats(
    options: DataOptions,
    recipes: Annotated[
        list[str] | None,
        typer.Argument(help="Recipes; without, all of the paper that are found."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show sizes, classes, mean length and vocabulary: the paper's Table 1.

    Examples:

        perron data stats sst1 sst2 snli --data-dir ~/data

        perron data stats --data reviews.csv --text review --label stars
    """
    from perron.cli.runs import resolve_recipe
    from perron.text.datasets import load_data, statistics
    from perron.training import recipe_names, recipe_table

    wanted: list[str | None] = list(recipes or ())
    if not wanted:
        names = [name for name in recipe_names() if "data" in recipe_table(name)]
        wanted = [None] if options.data else [name for name in names if name != "demo"]
    found = {}
    for name in wanted:
        recipe = resolve_recipe(TrainOptions(recipe=name, **vars(options)))
        try:
            splits = load_data(recipe.data)
        except DataError as error:
            if recipes or options.data or error.line is not None:
                raise
            print_message(f"{name}: {error}")
            continue
        found[name or str(options.data)] = statistics(splits, recipe.data, "lower")
    if as_json:
        typer.echo(json.dumps({name: asdict(told) for name, told in found.items()}))
        return
    table = Table("data", "train", "dev", "test", "classes", "mean words", "vocabulary")
    for name, told in found.items():
        table.add_row(
            name,
            *(f"{size:,}" for size in told.sizes.values()),
            str(len(told.labels)),
            f"{told.mean_length:.1f}",
            f"{told.vocabulary:,}",
        )
    results.print(table)
    for name, told in found.items():
        shares = ", ".join(f"{label} {count:,}" for label, count in told.labels.items())
        results.print(f"{name}: {shares}")
        if told.skipped or told.dropped:
            results.print(
                f"{name}: left out {told.skipped} bad rows, {told.dropped} without a "
                "label"
            )
