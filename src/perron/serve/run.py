"""Listening: where, for whom, and how it ends."""

import errno
import ipaddress
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from perron.errors import PerronError, SettingsError
from perron.serve.responses import Refused
from perron.serve.security import HEADERS

KEY = "PERRON_API_KEY"


def check_key(host: str, key: str | None) -> None:
    """Refuse keys that cannot be sent, and to be reached from elsewhere without one."""
    if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
        raise SettingsError(f"{KEY} must be printable ASCII without blanks")
    if key is None and not is_loopback(host):
        raise SettingsError(
            f"{host} can be reached from other machines, and that needs a key: set "
            f"{KEY}, for example to what `openssl rand -hex 32` prints, and let "
            "clients send it; or leave out --host"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what listens at the host."""
    addresses = [str(address[0]) for *_, address in _resolved(host, 0)]
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that has the port; who connects already waits."""
    family, kind, protocol, _, address = _resolved(host, port)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise PerronError(
                f"port {port} of {host} is taken: choose another one with --port, or "
                "stop what listens there"
            ) from error
        raise PerronError(f"cannot listen at {host}:{port}: {error}") from error
    return bound


def _resolved(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"--host {host}: no such host ({error})") from error


def address_of(bound: socket.socket) -> str:
    """Return where a browser finds what listens."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Starlette, bound: socket.socket, on_start: Callable[[], None]) -> None:
    """Answer until SIGTERM or SIGINT; then finish what is under way.

    Args:
        app: of `create_app`.
        bound: of `listen`.
        on_start: called as soon as requests are answered.
    """
    service = app.state.service
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # paths that are typed wrong may hold texts
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(service.limits.max_seconds) + 5,
    )

    def on_stop() -> None:
        service.stopping = True

    _Server(config, on_start, on_stop).run([bound])


class _Server(uvicorn.Server):
    """Tells when it starts and stops, and does not die of the signal that stops it."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_start: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.on_start = on_start
        self.on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A second Ctrl+C does not wait for anything.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self.on_stop()


class _Protocol(HttpToolsProtocol):
    """Gives what is no HTTP the same kind of answer as everything else."""

    def send_400_response(self, msg: str) -> None:
        refused = Refused(400, "no_http", "this is not a valid HTTP request.")
        answer = refused.answer()
        headers = {**answer.headers, **HEADERS, "cache-control": "no-store"}
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        head = "".join([*lines, "connection: close\r\n\r\n"]).encode()
        self.transport.write(STATUS_LINE[400] + head + bytes(answer.body))
        self.transport.close()
