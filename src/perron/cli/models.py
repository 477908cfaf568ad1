"""``perron info`` and ``perron export``: describe and convert saved models."""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from perron import __version__
from perron.cli.console import results
from perron.cli.options import Model
from perron.errors import SettingsError

EXPORT_FORMATS = ("onnx", "torch-export")
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
    from perron.registry import Registry, load_plugins

    load_plugins()
    registries: dict[str, Registry[Any]] = {
        "aggregators": AGGREGATORS,
        "connectivities": CONNECTIVITIES,
        "encoders": ENCODERS,
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
        "vocabulary": f"{config.vocabulary:,} words",
        "word vectors": f"{parts.embedding.dim}-d, "
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


def export(
    model: Model,
    format: Annotated[
        str, typer.Option("--format", help="onnx or torch-export.")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder. Defaults to MODEL/onnx or MODEL/torch-export."),
    ] = None,
    opset: Annotated[
        int | None,
        typer.Option(help="Version of ONNX's operators, 18 to 23. Defaults to 20."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing export.")
    ] = False,
) -> None:
    """Export a model to ONNX or torch.export, for any batch size and length.

    The folder also has the tokenizer, and export.json, which says how to use it. The
    export is run and compared with the model before it is saved.

    Examples:

        perron export runs/demo

        perron export runs/demo --format torch-export --out exported
    """
    if format not in EXPORT_FORMATS:
        raise SettingsError(
            f"--format must be one of {', '.join(EXPORT_FORMATS)}, got {format}."
        )
    if opset is not None and format != "onnx":
        raise SettingsError(f"--opset needs --format onnx, got --format {format}.")
    try:
        from perron.integrations import export as exporting
    except ModuleNotFoundError as error:
        raise SettingsError(str(error)) from error
    from perron.pipeline import load

    if opset is not None and opset not in exporting.OPSETS:
        first, last = exporting.OPSETS[0], exporting.OPSETS[-1]
        raise SettingsError(f"--opset must be from {first} to {last}, got {opset}.")
    folder = model / format if out is None else out
    pipeline = load(model)
    exporting.check_folder(folder, force)
    if format == "onnx":
        made = exporting.export_onnx(
            pipeline, folder, opset=opset or exporting.DEFAULT_OPSET, replace=force
        )
    else:
        made = exporting.export_torch(pipeline, folder, replace=force)
    for path in made.files:
        results.print(f"{path}  {path.stat().st_size:,} bytes")
    results.print(
        "probabilities and weights differ from the model's by "
        f"{made.difference:.1e} at most, on texts of random words"
    )
