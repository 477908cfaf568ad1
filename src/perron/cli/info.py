"""``perron info``: what is here."""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from perron import __version__
from perron.cli.console import results

PACKAGES = ("torch", "numba", "tokenizers", "datasets", "accelerate", "safetensors")


def info(
    model: Annotated[
        Path | None, typer.Argument(help="Folder of a trained model to describe.")
    ] = None,
) -> None:
    """Show versions, devices, recipes and data; or what a model is.

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
        "PERRON_DATA": os.environ.get("PERRON_DATA", "not set"),
        "cache": str(cache_folder()),
    }


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
        "encoder": _told(parts.encoder),
        "aggregator": _told(parts.aggregator),
        "cut at": f"{config.max_words} words",
        "weights": f"{sum(p.numel() for p in pipeline.model.parameters()):,}",
    }
    if parts.kind == "document":
        rows["of sentences"] = (
            f"{_told(parts.sentence_encoder or parts.encoder)}; "
            f"{_told(parts.sentence_aggregator or parts.aggregator)}; "
            f"cut at {config.max_sentences}"
        )
    return rows


def _told(settings: object) -> str:
    values = settings.model_dump()  # type: ignore[attr-defined]
    name = values.pop("name")
    rest = ", ".join(f"{key} {value}" for key, value in values.items())
    return f"{name} ({rest})" if rest else str(name)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
