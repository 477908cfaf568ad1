"""``perron serve`` and ``perron export``."""

import os
from pathlib import Path
from typing import Annotated

import typer

from perron.cli.console import print_message, results
from perron.cli.options import Model, with_options
from perron.errors import SettingsError, needs_extra
from perron.serve.limits import Limits

EXPORT_FORMATS = ("onnx", "torch-export")


@with_options(Limits)
def serve(
    models: Annotated[list[Path], typer.Argument(help="Folders of trained models.")],
    limits: Limits,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. Addresses other than loopback require "
            "PERRON_API_KEY."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Port to listen on; 0 selects any free port."
        ),
    ] = 8000,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of batches to process in parallel. Defaults to the number of "
            "CPU cores.",
        ),
    ] = None,
) -> None:
    """Serve models over HTTP, with a web page to explore their word graphs.

    The endpoints are /v1/predict, /v1/encode, /v1/explain and /v1/models, documented in
    /openapi.json. The web page is at /. If the environment variable PERRON_API_KEY is
    set, clients must send its value as the API key. On Ctrl+C or SIGTERM, the server
    finishes the requests in progress and exits.

    Examples:

        perron serve runs/demo

        perron serve runs/reviews runs/topics --port 8080
    """
    with needs_extra("serve", "perron serve"):
        from perron.serve.app import (
            API_KEY_VARIABLE,
            check_api_key,
            create_app,
            listen,
            server_url,
        )
        from perron.serve.app import serve as run
    import torch

    from perron.pipeline import load_all

    if limits.max_queue < limits.max_texts:
        raise SettingsError(
            f"--max-queue must be at least --max-texts ({limits.max_texts}), got "
            f"{limits.max_queue}. Otherwise, a large request could never be queued."
        )
    key = os.environ.get(API_KEY_VARIABLE) or None
    check_api_key(host, key)
    # One batch per core: operations on a few texts are too short to parallelize.
    threads = threads or torch.get_num_threads()
    torch.set_num_threads(1)
    with listen(host, port) as bound:
        app = create_app(load_all(models), limits, key, threads)
        names = ", ".join(app.state.service.models)
        run(
            app, bound, lambda: print_message(f"serving {names} at {server_url(bound)}")
        )


def export(
    model: Model,
    format: Annotated[
        str, typer.Option("--format", help="Export format: onnx or torch-export.")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output folder. Defaults to MODEL/onnx or MODEL/torch-export."
        ),
    ] = None,
    opset: Annotated[
        int | None,
        typer.Option(help="ONNX opset version, from 18 to 23. Defaults to 20."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing export.")
    ] = False,
) -> None:
    """Export a model to ONNX or torch.export.

    The exported model accepts any batch size and text length. The folder also contains
    the tokenizer and export.json, which describes inputs and outputs. Before it is
    saved, the exported model is run and compared with the original.

    Examples:

        perron export runs/demo

        perron export runs/demo --format torch-export --out exported
    """
    if format not in EXPORT_FORMATS:
        raise SettingsError(
            f"--format must be one of {', '.join(EXPORT_FORMATS)}, got {format}."
        )
    if opset is not None and format != "onnx":
        raise SettingsError(f"--opset requires --format onnx, got {format}.")
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
        exported = exporting.export_onnx(
            pipeline, folder, opset=opset or exporting.DEFAULT_OPSET, replace=force
        )
    else:
        exported = exporting.export_torch(pipeline, folder, replace=force)
    for path in exported.files:
        results.print(f"{path}  {path.stat().st_size:,} bytes")
    results.print(
        "largest difference in probabilities and weights from the model: "
        f"{exported.max_abs_difference:.1e} (on texts of random words)"
    )
