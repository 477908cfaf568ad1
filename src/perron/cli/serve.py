"""``perron serve``: models over HTTP."""

import os
from pathlib import Path
from typing import Annotated

import typer

from perron.cli.console import say
from perron.cli.options import with_options
from perron.errors import SettingsError
from perron.serve.limits import Limits


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
    try:
        from perron.serve.app import create_app
        from perron.serve.run import KEY, address_of, check_key, listen
        from perron.serve.run import serve as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("perron"):
            raise
        missing = error.name.partition(".")[0]
        raise SettingsError(
            f"{missing} is missing: pip install 'perron[serve]'"
        ) from error
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
        run(app, bound, lambda: say(f"serving {names} at {address_of(bound)}"))
