"""Local hub server with the parts of the HTTP API needed to push and load models."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SmallHub(ThreadingHTTPServer):
    """Server that keeps the files of models in memory.

    Attributes:
        models: Content of the files of each model.
        requests: Method and path of all requests, in order.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit_id(self, name: str) -> str:
        files = sorted(self.models[name].items())
        return hashlib.sha1(repr(files).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: SmallHub

    def log_message(self, *_: Any) -> None:
        """Do not log."""

    def do_POST(self) -> None:
        self.server.requests.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = self.path.strip("/").split("/")
        if self.path == "/api/repos/create":
            repository = json.loads(body)
            name = f"{repository['organization']}/{repository['name']}"
            self.server.models.setdefault(name, {})
            self._send_json({"url": f"{self.server.address}/{name}", "name": name})
        elif self.path == "/api/validate-yaml":
            self._send_json({"warnings": [], "errors": []})
        elif "preupload" in parts:
            files = json.loads(body)["files"]
            modes = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                for f in files
            ]
            self._send_json({"files": modes})
        elif "commit" in parts:
            name = "/".join(parts[2:4])
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.server.models[name][line["value"]["path"]] = content
            commit = self.server.commit_id(name)
            address = f"{self.server.address}/{name}/commit/{commit}"
            self._send_json(
                {"success": True, "commitUrl": address, "commitOid": commit}
            )
        else:
            self._send_not_found()

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def _respond(self, with_body: bool) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        parts = self.path.split("?")[0].strip("/").split("/")
        models = self.server.models
        if parts[:2] == ["api", "models"] and "/".join(parts[2:4]) in models:
            name = "/".join(parts[2:4])
            if "tree" in parts:
                entries = [
                    {
                        "type": "file",
                        "path": path,
                        "size": len(content),
                        "oid": hashlib.sha1(content).hexdigest(),
                    }
                    for path, content in models[name].items()
                ]
                return self._send_json(entries)
            files = [{"rfilename": path} for path in models[name]]
            commit = self.server.commit_id(name)
            self._send_json({"id": name, "sha": commit, "siblings": files})
        elif len(parts) > 4 and parts[2] == "resolve":
            name, path = "/".join(parts[:2]), "/".join(parts[4:])
            content = models.get(name, {}).get(path)
            if content is None:
                return self._send_not_found("EntryNotFound")
            self.send_response(200)
            self.send_header("x-repo-commit", self.server.commit_id(name))
            self.send_header("etag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if with_body:
                self.wfile.write(content)
        else:
            self._send_not_found()
        return None

    def _send_json(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_not_found(self, code: str = "RepoNotFound") -> None:
        self.send_response(404)
        self.send_header("x-error-code", code)
        self.send_header("content-length", "0")
        self.end_headers()


@contextmanager
def small_hub() -> Iterator[SmallHub]:
    """Run a local hub."""
    hub = SmallHub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
