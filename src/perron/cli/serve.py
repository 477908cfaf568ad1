"""``perron serve``: models over HTTP."""

import os
from pathlib import Path
from typing import Annotated

import typer

from perron.cli.console import say
from perron.errors import SettingsError


def serve(
    models: Annotated[list[Path], typer.Argument(help="Folders of trained models.")],
    host: Annotated[
        str, typer.Option(help="Address to listen at; all but loopback need a key.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 is any free one.")
    ] = 8000,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Batches at the same time; unless given, the cores."),
    ] = None,
    max_body: Annotated[
        int, typer.Option(min=1, help="Bytes of a request.")
    ] = 4_000_000,
    max_texts: Annotated[int, typer.Option(min=1, help="Texts of a request.")] = 256,
    max_words: Annotated[int, typer.Option(min=1, help="Words of a text.")] = 5000,
    max_characters: Annotated[
        int, typer.Option(min=1, help="Characters of a text.")
    ] = 50_000,
    max_explained_texts: Annotated[
        int, typer.Option(min=1, help="Texts of a request to /v1/explain.")
    ] = 16,
    max_explained_words: Annotated[
        int, typer.Option(min=1, help="Words of a text to explain.")
    ] = 1000,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Texts that wait to be computed.")
    ] = 4096,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Texts that are pooled together.")
    ] = 256,
    max_seconds: Annotated[
        float, typer.Option(min=0.001, help="Time for a request.")
    ] = 30.0,
    batch_wait: Annotated[
        float, typer.Option(min=0, help="Seconds that an idle server waits for more.")
    ] = 0.002,
) -> None:
    """Serve models: an HTTP API, and a page to look at what they see.

    The API is at /v1/predict, /v1/encode, /v1/explain and /v1/models, its description
    at /openapi.json, and the page at /. Clients must send the key that the environment
    variable PERRON_API_KEY holds, if it is set. Ctrl+C or SIGTERM finishes what is
    under way.

    Examples:

        perron serve runs/demo

        perron serve runs/demo-runs/centrality-0 runs/demo-runs/mean-0 --port 8080
    """
    try:
        from perron.serve import Limits, create_app
        from perron.serve.run import KEY, address_of, check_key, listen
        from perron.serve.run import serve as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("perron"):
            raise
        raise SettingsError(
            f"{error.name} is missing: pip install 'perron[serve]'"
        ) from error
    import torch

    from perron.pipeline import load_all

    limits = Limits(
        max_body=max_body,
        max_texts=max_texts,
        max_words=max_words,
        max_characters=max_characters,
        max_explained_texts=max_explained_texts,
        max_explained_words=max_explained_words,
        max_queue=max_queue,
        max_batch=max_batch,
        max_seconds=max_seconds,
        batch_wait=batch_wait,
    )
    if max_queue < max_texts:
        raise SettingsError(
            f"--max-queue {max_queue}: a request of --max-texts {max_texts} would "
            "never find room in it"
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
