"""The files of the viewer: nothing else of the disk can be reached."""

import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

import perron.explain

PAGES = Path(__file__).parent / "static"
GRAPH = Path(perron.explain.__file__).parent / "static"

# Not the system's table, in which .js may be anything; what is not here is not served.
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


class Files(StaticFiles):
    """A folder; links that lead out of it are not followed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, check_dir=False)
        self.config_checked = True  # a folder that is not there has no files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Whole files only, and so no errors about ranges.
        headers = [pair for pair in scope["headers"] if pair[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, *rest: Any
    ) -> Response:
        kind = _TYPES.get(Path(full_path).suffix)
        if kind is None:
            raise HTTPException(404)
        answer = super().file_response(full_path, stat_result, scope, *rest)
        answer.headers["content-type"] = kind
        answer.headers["accept-ranges"] = "none"
        return answer


def add_pages(app: FastAPI) -> None:
    """Add the viewer, at the root, and its files."""
    files = Files(PAGES)
    app.mount("/static/graph", Files(GRAPH))
    app.mount("/static", files)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)
