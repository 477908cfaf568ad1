"""``perron info``, ``perron data`` and ``perron cache``."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from perron import __version__
from perron.cli.console import is_interactive, print_message, results
from perron.cli.options import DataOptions, Json, TrainOptions, with_options
from perron.errors import DataError, PerronError, SettingsError

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
    table.add_column(overflow="fold")  # long paths are wrapped, not cut off
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


cache_app = typer.Typer(
    help="Show or remove cached data: encoded texts and the states of frozen encoders.",
    no_args_is_help=True,
)


@cache_app.command("list")
def list_cache(as_json: Json = False) -> None:
    """Show the cached states of each encoder and layer, and the size of the cache.

    Examples:

        perron cache list
    """
    from perron.text.cache import cache_folder, dataset_files
    from perron.text.state_store import list_stores

    stores = list_stores()
    size = sum(path.stat().st_size for path in dataset_files())
    if as_json:
        rows = [asdict(store) | {"folder": str(store.folder)} for store in stores]
        content = {"folder": str(cache_folder()), "datasets": size, "states": rows}
        typer.echo(json.dumps(content))
        return
    table = Table(
        Column("encoder", overflow="fold"),
        "layer",
        "type",
        "texts",
        "size",
        "last used",
    )
    for store in stores:
        table.add_row(
            store.encoder or "damaged",
            str(store.layer),
            store.dtype,
            f"{store.texts:,}",
            _format_size(store.size),
            datetime.fromtimestamp(store.last_used).strftime("%Y-%m-%d %H:%M"),
        )
    if stores:
        results.print(table)
    total = sum(store.size for store in stores)
    results.print(
        f"{cache_folder()}: states {_format_size(total)}, datasets {_format_size(size)}"
    )


@cache_app.command()
def prune(
    max_gigabytes: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Remove the least recently used states until the rest take up at most "
            "this many gigabytes.",
        ),
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="DAYS",
            help="Remove states that have not been used for this number of days.",
        ),
    ] = None,
) -> None:
    """Remove the least recently used states, by total size or by age.

    States that a command is writing are not removed. Commands that are reading states
    are not disturbed.

    Examples:

        perron cache prune --max-gigabytes 5

        perron cache prune --older-than 30
    """
    from perron.text.state_store import list_stores, prune_stores, remove_store

    if max_gigabytes is None and older_than is None:
        raise SettingsError("prune requires --max-gigabytes SIZE or --older-than DAYS.")
    removed = []
    if older_than is not None:
        oldest = time.time() - older_than * 24 * 3600
        removed += [
            store
            for store in list_stores()
            if store.last_used < oldest and remove_store(store.folder)
        ]
    if max_gigabytes is not None:
        removed += prune_stores(max_gigabytes * 1e9)
    size = _format_size(sum(store.size for store in removed))
    layers = f"{len(removed)} layer{'s' * (len(removed) != 1)}"
    print_message(f"Removed the states of {layers} ({size}).")


@cache_app.command()
def clear(
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")
    ] = False,
) -> None:
    """Remove all cached states and datasets. Later commands create them again.

    Examples:

        perron cache clear --yes
    """
    from perron.text.cache import cache_folder, dataset_files
    from perron.text.state_store import list_stores, remove_store

    stores, files = list_stores(), dataset_files()
    sizes = [store.size for store in stores] + [file.stat().st_size for file in files]
    what = f"{_format_size(sum(sizes))} in {cache_folder()}"
    if not sizes:
        print_message(f"The cache is empty: {cache_folder()}")
        return
    if not yes:
        if not is_interactive():
            raise SettingsError(f"removing {what} requires --yes.")
        typer.confirm(f"Remove {what}?", abort=True, err=True)
    for file in files:
        file.unlink(missing_ok=True)
    kept = [store for store in stores if not remove_store(store.folder)]
    if kept := [store for store in kept if store.folder.exists()]:
        names = ", ".join(str(store.folder) for store in kept)
        raise PerronError(f"kept states that a command is writing: {names}")
    print_message(f"Removed {what}.")


def _format_size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
