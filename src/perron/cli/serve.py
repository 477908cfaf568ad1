"""``perron serve`` and ``perron export``: models for other programs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from perron.cli.console import print_message, results
from perron.cli.options import Model, needs_extra, with_options
from perron.errors import SettingsError
from perron.serve.limits import Limits

EXPORT_FORMATS = ("onnx", "torch-export")


@with_options(Limits)
def serve(
    models: Annotated[list[Path], typer.Argument(help="Folders of trained models.")],
    limits: Limits,
    host: Annotated[
        str, typer.Option(help="Address to listen on. All but loopback need a key.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 is any free one.")
    ] = 8000,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Batches at the same time. Defaults to the number of cores.",
        ),
    ] = None,
) -> None:
    """Serve models: an HTTP API, and a page to explore their word graphs.

    The API is at /v1/predict, /v1/encode, /v1/explain and /v1/models, its description
    at /openapi.json, and the page at /. Clients must send the key that the environment
    variable PERRON_API_KEY holds, if it is set. Ctrl+C or SIGTERM stops the server
    after the requests that are being computed.

    Examples:

        perron serve runs/demo

        perron serve runs/demo-runs/centrality-0 runs/demo-runs/mean-0 --port 8080
    """
    with needs_extra("serve", "perron serve"):
        from perron.serve.app import KEY, address_of, check_key, create_app, listen
        from perron.serve.app import serve as run
    import torch

    from perron.pipeline import load_all

    if limits.max_queue < limits.max_texts:
        raise SettingsError(
            f"--max-queue must be at least --max-texts, {limits.max_texts}, got "
            f"{limits.max_queue}. A request with that many texts would never fit."
        )
    key = os.environ.get(KEY) or None
    check_key(host, key)
    # A batch for each core: operations on a few texts are too short to be shared.
    threads = threads or torch.get_num_threads()
    torch.set_num_threads(1)
    with listen(host, port) as bound:
        app = create_app(load_all(models), limits, key, threads)
        names = ", ".join(app.state.service.models)
        run(
            app, bound, lambda: print_message(f"serving {names} at {address_of(bound)}")
        )


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
        f"{made.max_abs_difference:.1e} at most, on texts of random words"
    )
