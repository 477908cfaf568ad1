"""``perron export``: a model for other runtimes."""

from pathlib import Path
from typing import Annotated

import typer

from perron.cli import options
from perron.cli.console import results
from perron.errors import SettingsError

FORMATS = ("onnx", "torch-export")


def export(
    model: options.Model,
    format: Annotated[
        str, typer.Option("--format", help="onnx or torch-export.")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder; MODEL/onnx or MODEL/torch-export if not given."),
    ] = None,
    opset: Annotated[
        int | None, typer.Option(help="Of ONNX's operators, 18 to 23; 20 if not given.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an export that is there.")
    ] = False,
) -> None:
    """Write a model as ONNX, or as a program of torch.export, for any batch and length.

    Beside the model are its tokenizer and export.json, which says how to use it. What
    was written is run and compared with the model before it gets its name.

    Examples:

        perron export runs/demo

        perron export runs/demo --format torch-export --out exported
    """
    if format not in FORMATS:
        raise SettingsError(f"--format {format}: is none of {', '.join(FORMATS)}")
    if opset is not None and format != "onnx":
        raise SettingsError("--opset: is for --format onnx")
    try:
        from perron.integrations import export as exporting
    except ModuleNotFoundError as error:
        raise SettingsError(str(error)) from error
    from perron.pipeline import load

    if opset is not None and opset not in exporting.OPSETS:
        first, last = exporting.OPSETS[0], exporting.OPSETS[-1]
        raise SettingsError(f"--opset {opset}: is not from {first} to {last}")
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
